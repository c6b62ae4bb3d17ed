//! Text from elsewhere, made safe for a terminal.

/// Replaces characters that move the cursor, break a line, or change the text direction.
pub(crate) fn plain(cell: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = |c: char| {
        if c.is_control() || turns(c) {
            '\u{fffd}'
        } else {
            c
        }
    };
    cell.chars().map(shown).collect()
}
