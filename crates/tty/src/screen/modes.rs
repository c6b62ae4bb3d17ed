//! Modes of a terminal that the emulated one does not have: the form of pasted text, keys, mouse
//! reports and the cursor. Participants who join late need them as well.

use super::put;

/// Modes that differ from those of a reset terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Modes {
    /// Mode that reports the mouse. A later one replaces it.
    mouse: Option<u16>,
    /// Form of these reports.
    mouse_form: Option<u16>,
    flags: u8,
    /// Form of the cursor (DECSCUSR).
    cursor: u16,
}

impl Modes {
    /// Sets or resets a private mode.
    pub(super) fn set_private(&mut self, mode: u16, is_set: bool) {
        match mode {
            9 | 1000 | 1002 | 1003 => self.mouse = is_set.then_some(mode),
            1006 | 1016 => self.mouse_form = is_set.then_some(mode),
            66 => self.set(KEYPAD, is_set),
            _ => {
                if let Some((_, flag)) = FLAGS.iter().find(|(known, _)| *known == mode) {
                    self.set(*flag, is_set);
                }
            }
        }
    }

    /// Sets or resets the application mode of the keypad.
    pub(super) fn set_keypad(&mut self, is_set: bool) {
        self.set(KEYPAD, is_set);
    }

    /// Sets the form of the cursor.
    pub(super) fn set_cursor(&mut self, form: u16) {
        self.cursor = form;
    }

    /// The modes after a soft reset (DECSTR): those of the mouse and of the cursor stay.
    pub(super) fn soft_reset(&mut self) {
        self.flags = 0;
    }

    /// Writes the sequences that set these modes in a reset terminal.
    pub(super) fn write(self, out: &mut String) {
        for mode in [self.mouse, self.mouse_form].into_iter().flatten() {
            put(out, format_args!("\x1b[?{mode}h"));
        }
        for (mode, flag) in FLAGS {
            if self.flags & flag != 0 {
                put(out, format_args!("\x1b[?{mode}h"));
            }
        }
        if self.flags & KEYPAD != 0 {
            out.push_str("\x1b=");
        }
        if self.cursor != 0 {
            put(out, format_args!("\x1b[{} q", self.cursor));
        }
    }

    fn set(&mut self, flag: u8, is_set: bool) {
        if is_set {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }
}

/// Private modes: backspace to the previous line, reports of the focus, brackets of pasted text.
const FLAGS: [(u16, u8); 3] = [(45, 1), (1004, 1 << 1), (2004, 1 << 2)];
const KEYPAD: u8 = 1 << 3;

/// Maximum bytes that [`Modes::write`] writes.
pub(super) const MAX_LEN: usize = 64;
