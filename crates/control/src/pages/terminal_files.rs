//! Files of the pages with a terminal: the platform's scripts, and xterm.js if the build includes
//! it (`build.rs`).

use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use types::problem::Problem;

use super::layout::PageRefusal;
use crate::http_api::extract::Path;

/// `GET /terminal/{file}`
pub(super) async fn serve(Path(name): Path<String>) -> Result<Response, PageRefusal> {
    let found = OURS
        .iter()
        .map(|(name, text)| (name, text.as_bytes()))
        .chain(XTERM.iter().map(|(name, bytes)| (name, *bytes)))
        .find(|(known, _)| **known == name);
    let (_, bytes) = found.ok_or_else(Problem::not_found)?;
    let kind = match name.rsplit_once('.') {
        Some((_, "mjs")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    };
    let headers = [
        (CONTENT_TYPE, kind),
        // The file must have the same version as the page that loads it.
        (CACHE_CONTROL, "no-cache"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, bytes).into_response())
}

/// True if this build includes the terminal.
pub(super) const fn has_terminal() -> bool {
    !XTERM.is_empty()
}

/// The files of xterm.js. Either all of them are included or none.
const XTERM: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/web.rs"));

const OURS: [(&str, &str); 20] = [
    ("webtty.mjs", include_str!("terminal/webtty.mjs")),
    ("engine.mjs", include_str!("terminal/engine.mjs")),
    ("server.mjs", include_str!("terminal/server.mjs")),
    ("join.mjs", include_str!("terminal/join.mjs")),
    ("kept.mjs", include_str!("terminal/kept.mjs")),
    ("returns.mjs", include_str!("terminal/returns.mjs")),
    ("shell.mjs", include_str!("terminal/shell.mjs")),
    ("stream.mjs", include_str!("terminal/stream.mjs")),
    ("paste.mjs", include_str!("terminal/paste.mjs")),
    ("press.mjs", include_str!("terminal/press.mjs")),
    ("screen.mjs", include_str!("terminal/screen.mjs")),
    ("room.mjs", include_str!("terminal/room.mjs")),
    ("input.mjs", include_str!("terminal/input.mjs")),
    ("find.mjs", include_str!("terminal/find.mjs")),
    ("links.mjs", include_str!("terminal/links.mjs")),
    ("tools.mjs", include_str!("terminal/tools.mjs")),
    ("list.mjs", include_str!("terminal/list.mjs")),
    ("open.mjs", include_str!("terminal/open.mjs")),
    ("watch.mjs", include_str!("terminal/watch.mjs")),
    ("replay.mjs", include_str!("terminal/replay.mjs")),
];
