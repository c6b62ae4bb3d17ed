//! A sequence that draws a screen, for participants who join late.
//!
//! The emulated terminal writes such a sequence as well, in forms that other terminals do not
//! understand, and it fills each row with blanks: a narrower window would then wrap every row.
//! Rows are therefore written here, and its other functions are spelled as terminals expect them.

use avt::parser::{AnsiMode, CtcOp, DecMode, Function, Parser};
use avt::{Charset, Line, ScreenKind, Terminal};

use super::filter::{Filter, printable};
use super::row::{self, RowWriter};
use super::scrollback::Scrollback;
use super::style::{Style, Styles};
use super::{RESET, put};

/// The sequence for a reset terminal of the same size, without the end that the filter writes. It
/// starts with the rows above the screen, if there are any.
pub(super) fn draw(
    terminal: &Terminal,
    filter: &Filter,
    scrollback: Option<&Scrollback>,
) -> String {
    let dump = terminal.dump();
    let mut parser = Parser::new();
    let mut rest = dump.chars().filter_map(|c| parser.feed(c)).peekable();
    let mut writer = SnapshotWriter {
        out: RESET.to_owned(),
        filter,
        is_alternate: false,
        style: Style::default(),
    };
    writer.save_concealed();
    writer.rows(terminal.primary_screen().visible_lines(), scrollback);
    while rest.next_if(is_content).is_some() {}
    while let Some(function) = rest.next() {
        writer.function(&function);
        let enters = matches!(&function, Function::Decset(modes)
            if modes.as_slice() == [DecMode::AltScreenBuffer]);
        if enters && terminal.active_screen_kind() == ScreenKind::Alternate {
            // The cursor moves to the first row before the content.
            if let Some(home) = rest.next() {
                writer.function(&home);
            }
            writer.rows(terminal.screen().visible_lines(), None);
            while rest.next_if(is_content).is_some() {}
        }
    }
    writer.out
}

/// True for functions that draw the rows of a screen.
fn is_content(function: &Function) -> bool {
    use Function::{Cr, Lf, Print, Rep, Sgr};
    matches!(function, Print(_) | Rep(_) | Sgr(_) | Cr | Lf)
}

/// A snapshot that is being written.
struct SnapshotWriter<'s> {
    out: String,
    filter: &'s Filter,
    /// The alternate screen is active at this place of the snapshot.
    is_alternate: bool,
    /// The style at this place, outside of the rows.
    style: Style,
}

impl SnapshotWriter<'_> {
    /// Saves cursors with concealed text at the initial position. The functions of the emulated
    /// terminal do not contain them; cursors elsewhere replace them later.
    fn save_concealed(&mut self) {
        if self.filter.saved_conceals(false) {
            self.out.push_str(SAVE_CONCEALED);
        }
        if self.filter.saved_conceals(true) {
            self.out.push_str("\x1b[?1047h");
            self.out.push_str(SAVE_CONCEALED);
            self.out.push_str("\x1b[?1047l");
        }
    }

    /// Writes the rows of a screen. Those of `scrollback` come first, and scroll off it.
    fn rows<'l>(&mut self, lines: impl Iterator<Item = &'l Line>, scrollback: Option<&Scrollback>) {
        let lines: Vec<&Line> = lines.collect();
        let styles = self.filter.styles();
        let mut continues = false;
        if let Some(scrollback) = scrollback {
            scrollback.write(&mut self.out, lines.first().copied());
            continues = scrollback.ends_wrapped();
        }
        let count = needed(&lines, styles).max(usize::from(continues));
        let mut row = match scrollback {
            Some(_) => RowWriter::scrolling(&mut self.out, styles),
            None => RowWriter::new(&mut self.out, styles),
        };
        for (at, line) in lines.iter().take(count).enumerate() {
            let is_before_wide = lines.get(at + 1).is_some_and(|next| row::starts_wide(next));
            let cells = row::without_last_blank(line).filter(|_| is_before_wide);
            let cells = cells.unwrap_or_else(|| line.cells());
            row.write(cells, line.is_wrapped(), continues);
            continues = line.is_wrapped();
            if at + 1 < count && !continues {
                row.end_line();
            }
        }
        row.set(Style::default());
        if scrollback.is_some() {
            // The rows above the screen are off it when the cursor is in its last row.
            let below = lines.len().saturating_sub(count.max(1));
            self.out.extend(std::iter::repeat_n("\r\n", below));
        }
    }

    fn function(&mut self, function: &Function) {
        use Function::{
            Cha, Ctc, Cub, Cud, Cuf, Cup, Cuu, Decrst, Decsc, Decset, Decstbm, G1d4, Gzd4, Print,
            Scorc, Sgr, Sm, So,
        };
        let out = &mut self.out;
        match function {
            Cha(n) => put(out, format_args!("\x1b[{n}G")),
            Ctc(CtcOp::ClearAll) => out.push_str("\x1b[3g"),
            Ctc(CtcOp::Set) => out.push_str("\x1bH"),
            Cub(n) => put(out, format_args!("\x1b[{n}D")),
            Cud(n) => put(out, format_args!("\x1b[{n}B")),
            Cuf(n) => put(out, format_args!("\x1b[{n}C")),
            Cup(row, col) => put(out, format_args!("\x1b[{row};{col}H")),
            Cuu(n) => put(out, format_args!("\x1b[{n}A")),
            Decset(modes) => self.modes(modes.as_slice(), 'h'),
            Decrst(modes) => self.modes(modes.as_slice(), 'l'),
            Decsc if self.filter.saved_conceals(self.is_alternate) => out.push_str(SAVE_CONCEALED),
            Decsc => out.push_str(SAVE),
            Decstbm(top, bottom) => put(out, format_args!("\x1b[{top};{bottom}r")),
            G1d4(Charset::Drawing) => out.push_str("\x1b)0"),
            Gzd4(Charset::Drawing) => out.push_str("\x1b(0"),
            // An erased cell has no attributes.
            Print(' ') => {
                self.style.erased().write(out);
                out.push(' ');
            }
            Print(c) => out.push(printable(*c)),
            Scorc => out.push_str("\x1b[u"),
            Sgr(operations) => {
                self.style = self.filter.styles().original(operations.into());
                self.style.write(out);
            }
            Sm(modes) => {
                for mode in modes.as_slice() {
                    match mode {
                        AnsiMode::Insert => out.push_str("\x1b[4h"),
                        AnsiMode::NewLine => out.push_str(super::SET_NEW_LINE_MODE),
                    }
                }
            }
            So => out.push('\x0e'),
            // The snapshot of the emulated terminal has no other functions.
            _ => {}
        }
    }

    fn modes(&mut self, modes: &[DecMode], last: char) {
        for mode in modes {
            if *mode == DecMode::AltScreenBuffer {
                self.is_alternate = last == 'h';
            }
            let number = *mode as u16;
            put(&mut self.out, format_args!("\x1b[?{number}{last}"));
        }
    }
}

/// Number of rows of a screen that have to be written, from its top.
fn needed(lines: &[&Line], styles: &Styles) -> usize {
    // A row that continues its predecessor is written even if it is blank.
    let is_needed = |line: &&Line| {
        line.is_wrapped() || row::blank_end(line.cells(), styles) < line.cells().len()
    };
    let last = lines.iter().rposition(is_needed);
    last.map_or(0, |last| {
        let continues = lines.get(last).is_some_and(|line| line.is_wrapped());
        last + 1 + usize::from(continues)
    })
}

const SAVE: &str = "\x1b7";

const SAVE_CONCEALED: &str = "\x1b[8m\x1b7\x1b[28m";
