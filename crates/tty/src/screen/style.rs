//! Attributes of text (SGR, ECMA-48 section 8.3.117), including those that the emulated
//! terminal does not have.
//!
//! The emulated terminal stores colours and simple attributes. Underline styles, underline colours,
//! overline, and bold text that is also faint are outside of its model. A text with one of these
//! gets a number in [`Styles`], and the emulated terminal gets a reserved style that contains the
//! number as its colour.

use std::collections::HashMap;

use avt::parser::{SgrOp, SgrOps};

use super::put;

/// A colour of a palette with 256 entries, or a direct one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Colour {
    Indexed(u8),
    Rgb(u8, u8, u8),
}

impl From<avt::Color> for Colour {
    fn from(colour: avt::Color) -> Self {
        match colour {
            avt::Color::Indexed(index) => Self::Indexed(index),
            avt::Color::RGB(rgb) => Self::Rgb(rgb.r, rgb.g, rgb.b),
        }
    }
}

/// Form of the line below a text. The numbers are those of `4:n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Underline {
    #[default]
    None = 0,
    Single = 1,
    Double = 2,
    Curly = 3,
    Dotted = 4,
    Dashed = 5,
}

impl Underline {
    fn numbered(number: u16) -> Self {
        match number {
            0 => Self::None,
            2 => Self::Double,
            3 => Self::Curly,
            4 => Self::Dotted,
            5 => Self::Dashed,
            _ => Self::Single,
        }
    }
}

/// An attribute that is set or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Attribute {
    Bold = 1,
    Faint = 1 << 1,
    Italic = 1 << 2,
    Blink = 1 << 3,
    Inverse = 1 << 4,
    Strikethrough = 1 << 5,
    Overline = 1 << 6,
    Concealed = 1 << 7,
}

/// The attributes of a character.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Style {
    pub(crate) foreground: Option<Colour>,
    pub(crate) background: Option<Colour>,
    pub(crate) underline: Underline,
    underline_colour: Option<Colour>,
    attributes: u8,
}

impl Style {
    pub(crate) fn has(self, attribute: Attribute) -> bool {
        self.attributes & attribute as u8 != 0
    }

    /// Sets or removes an attribute.
    pub(super) fn set(&mut self, attribute: Attribute, is_set: bool) {
        if is_set {
            self.attributes |= attribute as u8;
        } else {
            self.attributes &= !(attribute as u8);
        }
    }

    /// True if a blank in this style is more than its background.
    pub(super) fn shows_blanks(self) -> bool {
        const VISIBLE: u8 =
            Attribute::Inverse as u8 | Attribute::Strikethrough as u8 | Attribute::Overline as u8;
        self.underline != Underline::None || self.attributes & VISIBLE != 0
    }

    /// The style of a cell that was erased with this style: terminals keep the background.
    pub(super) fn erased(self) -> Self {
        Self {
            background: self.background,
            ..Self::default()
        }
    }

    /// Applies the parameters of a sequence, which consist of digits, `;` and `:`.
    pub(super) fn apply(&mut self, parameters: &str) {
        let mut rest = parameters.split(';').take(MAX_PARAMETERS);
        while let Some(parameter) = rest.next() {
            let (code, parts) = match parameter.split_once(':') {
                Some((code, parts)) => (code, Some(parts)),
                None => (parameter, None),
            };
            match number(code) {
                4 => {
                    let style = parts.and_then(|parts| parts.split(':').next());
                    self.underline = style.map_or(Underline::Single, |style| {
                        Underline::numbered(number(style))
                    });
                }
                code @ (38 | 48 | 58) => {
                    let colour = match parts {
                        Some(parts) => colour_of_parts(parts),
                        None => colour_of_parameters(&mut rest),
                    };
                    let Some(colour) = colour else { continue };
                    match code {
                        38 => self.foreground = Some(colour),
                        48 => self.background = Some(colour),
                        _ => self.underline_colour = Some(colour),
                    }
                }
                code => self.apply_code(code),
            }
        }
    }

    fn apply_code(&mut self, code: u16) {
        let indexed = |from: u16| Some(Colour::Indexed(low_byte(code - from)));
        match code {
            0 => *self = Self::default(),
            1 => self.set(Attribute::Bold, true),
            2 => self.set(Attribute::Faint, true),
            3 => self.set(Attribute::Italic, true),
            5 => self.set(Attribute::Blink, true),
            7 => self.set(Attribute::Inverse, true),
            8 => self.set(Attribute::Concealed, true),
            9 => self.set(Attribute::Strikethrough, true),
            21 => self.underline = Underline::Double,
            22 => {
                self.set(Attribute::Bold, false);
                self.set(Attribute::Faint, false);
            }
            23 => self.set(Attribute::Italic, false),
            24 => self.underline = Underline::None,
            25 => self.set(Attribute::Blink, false),
            27 => self.set(Attribute::Inverse, false),
            28 => self.set(Attribute::Concealed, false),
            29 => self.set(Attribute::Strikethrough, false),
            30..=37 => self.foreground = indexed(30),
            39 => self.foreground = None,
            40..=47 => self.background = indexed(40),
            49 => self.background = None,
            53 => self.set(Attribute::Overline, true),
            55 => self.set(Attribute::Overline, false),
            59 => self.underline_colour = None,
            90..=97 => self.foreground = indexed(82),
            100..=107 => self.background = indexed(92),
            _ => {}
        }
    }

    /// Writes the sequence that sets exactly this style, without concealment. Colours have the form
    /// with semicolons: with colons, terminals disagree on the position of the first component.
    pub(super) fn write(self, out: &mut String) {
        out.push_str("\x1b[");
        if self != Self::default() {
            out.push('0');
        }
        for (attribute, code) in CODES {
            if self.has(attribute) {
                out.push_str(code);
            }
        }
        match self.underline {
            Underline::None => {}
            Underline::Single => out.push_str(";4"),
            style => put(out, format_args!(";4:{}", style as u8)),
        }
        let colours = [
            (self.foreground, 38),
            (self.background, 48),
            (self.underline_colour, 58),
        ];
        for (colour, code) in colours {
            match colour {
                Some(Colour::Indexed(index)) => put(out, format_args!(";{code};5;{index}")),
                Some(Colour::Rgb(r, g, b)) => put(out, format_args!(";{code};2;{r};{g};{b}")),
                None => {}
            }
        }
        out.push('m');
    }

    /// True if the emulated terminal can store this style.
    fn is_native(self) -> bool {
        let is_simple = matches!(self.underline, Underline::None | Underline::Single)
            && self.underline_colour.is_none()
            && !self.has(Attribute::Overline)
            && !(self.has(Attribute::Bold) && self.has(Attribute::Faint));
        is_simple && self.reserved_number().is_none()
    }

    /// This style as far as the emulated terminal can store it.
    fn nearest_native(self) -> Self {
        let mut nearest = self;
        nearest.underline_colour = None;
        if self.underline != Underline::None {
            nearest.underline = Underline::Single;
        }
        nearest.set(Attribute::Overline, false);
        if self.has(Attribute::Bold) {
            nearest.set(Attribute::Faint, false);
        }
        if nearest.reserved_number().is_some() {
            nearest.set(Attribute::Blink, false);
        }
        nearest
    }

    /// The reserved style with this number.
    fn reserved(number: u16) -> Self {
        let [high, low] = number.to_be_bytes();
        Self {
            foreground: Some(Colour::Rgb(RESERVED_RED, high, low)),
            background: Some(RESERVED_BACKGROUND),
            underline: Underline::Single,
            underline_colour: None,
            attributes: RESERVED_ATTRIBUTES,
        }
    }

    /// The number of a reserved style.
    fn reserved_number(self) -> Option<u16> {
        match self.foreground {
            Some(Colour::Rgb(RESERVED_RED, high, low)) => {
                let number = u16::from_be_bytes([high, low]);
                (self == Self::reserved(number)).then_some(number)
            }
            _ => None,
        }
    }
}

impl From<&avt::Pen> for Style {
    fn from(pen: &avt::Pen) -> Self {
        let mut style = Self {
            foreground: pen.foreground().map(Colour::from),
            background: pen.background().map(Colour::from),
            ..Self::default()
        };
        if pen.is_underline() {
            style.underline = Underline::Single;
        }
        for (attribute, is_set) in [
            (Attribute::Bold, pen.is_bold()),
            (Attribute::Faint, pen.is_faint()),
            (Attribute::Italic, pen.is_italic()),
            (Attribute::Blink, pen.is_blink()),
            (Attribute::Inverse, pen.is_inverse()),
            (Attribute::Strikethrough, pen.is_strikethrough()),
        ] {
            style.set(attribute, is_set);
        }
        style
    }
}

impl From<&SgrOps> for Style {
    /// The style after these operations of the emulated terminal, which start with a reset.
    fn from(operations: &SgrOps) -> Self {
        let mut style = Self::default();
        for operation in operations.as_slice() {
            match operation {
                SgrOp::SetBoldIntensity => style.set(Attribute::Bold, true),
                SgrOp::SetFaintIntensity => style.set(Attribute::Faint, true),
                SgrOp::SetItalic => style.set(Attribute::Italic, true),
                SgrOp::SetUnderline => style.underline = Underline::Single,
                SgrOp::SetBlink => style.set(Attribute::Blink, true),
                SgrOp::SetInverse => style.set(Attribute::Inverse, true),
                SgrOp::SetStrikethrough => style.set(Attribute::Strikethrough, true),
                SgrOp::SetForegroundColor(colour) => style.foreground = Some((*colour).into()),
                SgrOp::SetBackgroundColor(colour) => style.background = Some((*colour).into()),
                _ => {}
            }
        }
        style
    }
}

/// Styles that the emulated terminal cannot store, by their number.
#[derive(Debug, Default)]
pub(crate) struct Styles {
    known: Vec<Style>,
    numbers: HashMap<Style, u16>,
}

impl Styles {
    /// The style that the emulated terminal stores for this one.
    pub(super) fn stored(&mut self, mut style: Style) -> Style {
        style.set(Attribute::Concealed, false);
        if style.is_native() {
            return style;
        }
        if let Some(number) = self.numbers.get(&style) {
            return Style::reserved(*number);
        }
        let number = u16::try_from(self.known.len())
            .ok()
            .filter(|number| *number < MAX_STYLES);
        let Some(number) = number else {
            return style.nearest_native();
        };
        self.known.push(style);
        self.numbers.insert(style, number);
        Style::reserved(number)
    }

    /// The style for which another one was stored.
    pub(crate) fn original(&self, stored: Style) -> Style {
        stored
            .reserved_number()
            .and_then(|number| self.known.get(usize::from(number)).copied())
            .unwrap_or(stored)
    }
}

/// A direct or an indexed colour in the parts of one parameter (ITU-T T.416 section 13.1.8). The
/// second part of a direct colour is its colour space, which many programs omit.
fn colour_of_parts(parts: &str) -> Option<Colour> {
    let mut parts = parts.split(':').map(number);
    match parts.next()? {
        5 => Some(Colour::Indexed(low_byte(parts.next().unwrap_or(0)))),
        2 => {
            let all: Vec<u16> = parts.take(4).collect();
            let components = match all.as_slice() {
                [_, components @ ..] if all.len() == 4 => components,
                components => components,
            };
            let part = |at: usize| low_byte(components.get(at).copied().unwrap_or(0));
            Some(Colour::Rgb(part(0), part(1), part(2)))
        }
        _ => None,
    }
}

/// The same in separate parameters.
fn colour_of_parameters<'p>(rest: &mut impl Iterator<Item = &'p str>) -> Option<Colour> {
    match number(rest.next()?) {
        5 => Some(Colour::Indexed(low_byte(number(
            rest.next().unwrap_or_default(),
        )))),
        2 => {
            let mut part = || low_byte(number(rest.next().unwrap_or_default()));
            Some(Colour::Rgb(part(), part(), part()))
        }
        _ => None,
    }
}

/// A parameter: 0 if it is absent, and the largest number if it is too large.
fn number(text: &str) -> u16 {
    if text.is_empty() {
        0
    } else {
        text.parse().unwrap_or(u16::MAX)
    }
}

/// Terminals use the low byte of a component that is too large.
fn low_byte(number: u16) -> u8 {
    let [_, low] = number.to_be_bytes();
    low
}

/// Parameters of attributes, in the order of a sequence.
const CODES: [(Attribute, &str); 7] = [
    (Attribute::Bold, ";1"),
    (Attribute::Faint, ";2"),
    (Attribute::Italic, ";3"),
    (Attribute::Blink, ";5"),
    (Attribute::Inverse, ";7"),
    (Attribute::Strikethrough, ";9"),
    (Attribute::Overline, ";53"),
];

/// Parameters of a sequence that count, as in xterm.js.
const MAX_PARAMETERS: usize = 32;

/// Maximum number of styles that the emulated terminal cannot store: much more than programs use at
/// the same time. Later ones lose the attributes that it does not have.
const MAX_STYLES: u16 = 4096;

// A style that no program uses, with a number in its foreground.
const RESERVED_RED: u8 = 0x53;
const RESERVED_BACKGROUND: Colour = Colour::Rgb(0x76, 0x63, 0x01);
const RESERVED_ATTRIBUTES: u8 = Attribute::Faint as u8
    | Attribute::Italic as u8
    | Attribute::Blink as u8
    | Attribute::Inverse as u8
    | Attribute::Strikethrough as u8;

#[cfg(test)]
mod tests {
    use super::*;

    fn style(parameters: &str) -> Style {
        let mut style = Style::default();
        style.apply(parameters);
        style
    }

    fn written(style: Style) -> String {
        let mut out = String::new();
        style.write(&mut out);
        out
    }

    #[test]
    fn parameters_set_the_style_that_is_written() {
        for (given, expected) in [
            ("", "\x1b[m"),
            ("0", "\x1b[m"),
            ("1;31", "\x1b[0;1;38;5;1m"),
            ("97;104", "\x1b[0;38;5;15;48;5;12m"),
            ("38;5;208", "\x1b[0;38;5;208m"),
            ("38;2;255;165;0", "\x1b[0;38;2;255;165;0m"),
            ("38:2::255:165:0", "\x1b[0;38;2;255;165;0m"),
            ("38:2:255:165:0", "\x1b[0;38;2;255;165;0m"),
            ("48:5:17", "\x1b[0;48;5;17m"),
            ("4", "\x1b[0;4m"),
            ("4:3", "\x1b[0;4:3m"),
            ("21", "\x1b[0;4:2m"),
            ("4:3;58;2;1;2;3", "\x1b[0;4:3;58;2;1;2;3m"),
            ("4:3;4:0", "\x1b[m"),
            ("4;58:5:9;24;59", "\x1b[m"),
            ("53;2;1", "\x1b[0;1;2;53m"),
            ("1;2;22", "\x1b[m"),
            ("53;55;7", "\x1b[0;7m"),
            ("38;5;8", "\x1b[0;38;5;8m"),
            ("38;7;1", "\x1b[0;1m"),
        ] {
            assert_eq!(written(style(given)), expected, "{given}");
        }
    }

    #[test]
    fn styles_beyond_the_limit_lose_attributes_that_cannot_be_stored() {
        let mut styles = Styles::default();
        let mut curly = |index: u16| {
            let given = style(&format!(
                "1;2;4:3;38;5;{};58;5;{}",
                index / 256,
                index % 256
            ));
            let stored = styles.stored(given);
            assert!(styles.known.len() <= usize::from(MAX_STYLES));
            (given, styles.original(stored))
        };
        for index in 0..MAX_STYLES {
            let (given, original) = curly(index);
            assert_eq!(given, original);
        }
        let (_, original) = curly(MAX_STYLES);
        assert_eq!(written(original), "\x1b[0;1;4;38;5;16m");
        // Known ones stay.
        let (given, original) = curly(7);
        assert_eq!(given, original);
    }

    /// A program that writes the reserved style gets it back.
    #[test]
    fn a_reserved_style_is_a_style_like_others() {
        let mut styles = Styles::default();
        let first = styles.stored(style("4:4"));
        let second = styles.stored(Style::reserved(0));
        assert_ne!(first, second);
        assert_eq!(styles.original(first), style("4:4"));
        assert_eq!(styles.original(second), Style::reserved(0));
    }
}
