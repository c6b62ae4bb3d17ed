//! The table of JSON texts that RFC 8259 allows, forbids or leaves open, each with the result of
//! our strict parser. It parses `params`, claims and the link.
//!
//! The kinds of rows are those of `JSONTestSuite` (`y_`, `n_`, `i_`).

use types::json::{self, Limits};

const LIMITS: Limits = Limits {
    bytes: 16 * 1024,
    depth: 32,
};

fn reads(text: &[u8]) -> bool {
    json::parse(text, LIMITS).is_ok()
}

#[track_caller]
fn all(rows: &[&[u8]], expected: bool) {
    let wrong: Vec<_> = rows
        .iter()
        .filter(|text| reads(text) != expected)
        .map(|text| text.escape_ascii().to_string())
        .collect();
    assert!(wrong.is_empty(), "reads: {}: {wrong:#?}", !expected);
}

#[test]
fn texts_that_the_grammar_allows_are_parsed() {
    all(
        &[
            // Top-level values.
            b"null",
            b"true",
            b"false",
            b"0",
            b"-1",
            b"\"\"",
            b"\"asd\"",
            b"[]",
            b"{}",
            b"42 ",
            b" 1",
            b"\t\r\n {} \t\r\n",
            // Arrays.
            b"[[]   ]",
            b"[\"\"]",
            b"[false]",
            b"[null, 1, \"1\", {}]",
            b"[null]",
            b"[1\n]",
            b" [1]",
            b"[1,null,null,null,2]",
            b"[2] ",
            b"[[],[[]]]",
            // Numbers.
            b"[123e65]",
            b"[0e+1]",
            b"[0e1]",
            b"[ 4]",
            b"[-0.000000000000000000000000000000000000000000000000001]",
            b"[20e1]",
            b"[-0]",
            b"[-123]",
            b"[-1]",
            b"[1E22]",
            b"[1E-2]",
            b"[1E+2]",
            b"[123e45]",
            b"[123.456e78]",
            b"[1e-2]",
            b"[1e+2]",
            b"[123]",
            b"[123.456789]",
            b"[0.5]",
            b"[-0.0]",
            b"[9007199254740993]",
            b"[9223372036854775807]",
            b"[-9223372036854775808]",
            b"[18446744073709551615]",
            // Objects.
            b"{\"asd\":\"sdf\", \"dfg\":\"fgh\"}",
            b"{\"asd\":\"sdf\"}",
            b"{\"\":0}",
            b"{\"foo\\u0000bar\": 42}",
            b"{ \"min\": -1.0e+28, \"max\": 1.0e+28 }",
            b"{\"x\":[{\"id\": \"a\"}], \"id\": \"a\"}",
            b"{\"a\":[]}",
            b"{\"title\":\"\\u041f\\u043e\\u043b\" }",
            b"{\n\"a\": \"b\"\n}",
            b"{\"a\":{\"a\":{\"a\":1}}}",
            // Strings.
            b"[\"\\u0060\\u012a\\u12AB\"]",
            b"[\"\\uD801\\udc37\"]",
            b"[\"\\ud83d\\ude39\\ud83d\\udc8d\"]",
            b"[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]",
            b"[\"\\\\u0000\"]",
            b"[\"\\\"\"]",
            b"[\"a/*b*/c/*d//e\"]",
            b"[\"\\\\a\"]",
            b"[\"\\\\n\"]",
            b"[\"\\u0012\"]",
            b"[\"\\uFFFF\"]",
            b"[ \"asd\"]",
            b"[\"\\uDBFF\\uDFFF\"]",
            b"[\"new\\u00A0line\"]",
            b"[\"\xf4\x8f\xbf\xbf\"]",
            b"[\"\xef\xbf\xbf\"]",
            b"[\"\\u0000\"]",
            b"[\"\\u002c\"]",
            b"[\"\xcf\x80\"]",
            b"[\"\xf0\x9b\xbf\xbf\"]",
            b"[\"asd \"]",
            b"\" \"",
            b"[\"\\uD834\\uDd1e\"]",
            b"[\"\\u0821\"]",
            b"[\"\\u0123\"]",
            b"[\"\xe2\x80\xa8\"]",
            b"[\"\xe2\x80\xa9\"]",
            b"[\"\\u0061\\u30af\\u30EA\\u30b9\"]",
            b"[\"new\\u000Aline\"]",
            b"[\"\x7f\"]",
            b"[\"\\uA66D\"]",
            b"[\"\\u005C\"]",
            b"[\"\xe2\x8d\x82\xe3\x88\xb4\"]",
            b"[\"\\uDBFF\\uDFFE\"]",
            b"[\"\\uFDD0\"]",
            b"[\"\\uFFFE\"]",
            b"[\"\\u200B\"]",
            b"[\"\\u2064\"]",
            b"[\"a\x7fa\"]",
            b"[\"\\u0022\"]",
            b"[\"\\uD83F\\uDFFE\"]",
            b"[\"\xc2\x80\"]",
        ],
        true,
    );
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn texts_that_the_grammar_forbids_are_refused() {
    all(
        &[
            // Arrays.
            b"[1 true]",
            b"[\"\": 1]",
            b"[\"\"],",
            b"[,1]",
            b"[1,,2]",
            b"[\"x\",,]",
            b"[\"x\"]]",
            b"[\"\",]",
            b"[\"x\"",
            b"[x",
            b"[3[4]]",
            b"[,]",
            b"[-]",
            b"[   , \"\"]",
            b"[1,]",
            b"[1,,]",
            b"[\"a\"\x0bb\"\\f]",
            b"[*]",
            b"[\"\"",
            b"[1,",
            b"[1,\n1\n,1",
            b"[{}",
            b"[",
            b"]",
            b"[1]x",
            b"[1]]",
            b"[\"a\",\n4\n,1,",
            b"[}",
            b"[1 2]",
            b"[a",
            // Literals.
            b"[fals]",
            b"[nul]",
            b"[tru]",
            b"[True]",
            b"[TRUE]",
            b"[Null]",
            b"[nan]",
            b"[NaN]",
            b"[Infinity]",
            b"[-Infinity]",
            b"[-NaN]",
            b"nulll",
            b"truefalse",
            b"undefined",
            b"[Inf]",
            b"[inf]",
            // Numbers.
            b"[++1234]",
            b"[+1]",
            b"[+Inf]",
            b"[-01]",
            b"[-1.0.]",
            b"[-2.]",
            b"[.-1]",
            b"[.2e-3]",
            b"[0.1.2]",
            b"[0.3e+]",
            b"[0.3e]",
            b"[0.e1]",
            b"[0E+]",
            b"[0E]",
            b"[0e+]",
            b"[0e]",
            b"[1.0e+]",
            b"[1.0e-]",
            b"[1.0e]",
            b"[1 000.0]",
            b"[1eE2]",
            b"[2.e+3]",
            b"[2.e-3]",
            b"[2.e3]",
            b"[9.e+]",
            b"[1+2]",
            b"[0x1]",
            b"[0x42]",
            b"[0b1]",
            b"[0o7]",
            b"[-foo]",
            b"[- 1]",
            b"[-012]",
            b"[-.123]",
            b"[-1x]",
            b"[1ea]",
            b"[1.]",
            b"[.123]",
            b"[1.2a-3]",
            b"[1.8011670033376514H-308]",
            b"[012]",
            b"[00]",
            b"[1_000]",
            b"[1e\xe5]",
            b"[0\xe5]",
            b"[123\xe5]",
            b"[\xef\xbc\x91]",
            b"[--2.]",
            b"[1,2",
            b"[1e1.5]",
            b"[-]",
            // Objects.
            b"[\"x\", truth]",
            b"{[: \"x\"}\n",
            b"{\"x\", null}",
            b"{\"x\"::\"b\"}",
            b"{\"a\":\"a\" 123}",
            b"{key: 'value'}",
            b"{\"a\" b}",
            b"{:\"b\"}",
            b"{\"a\" \"b\"}",
            b"{\"a\":",
            b"{\"a\"",
            b"{1:1}",
            b"{9999E9999:1}",
            b"{null:null,null:null}",
            b"{\"id\":0,,,,,}",
            b"{'a':0}",
            b"{\"id\":0,}",
            b"{\"a\":\"b\"}/**/",
            b"{\"a\":\"b\"}/**//",
            b"{\"a\":\"b\"}//",
            b"{\"a\":\"b\"}/",
            b"{\"a\":\"b\",,\"c\":\"d\"}",
            b"{a: \"b\"}",
            b"{\"a\":\"a",
            b"{ \"foo\" : \"bar\", \"a\" }",
            b"{\"a\":\"b\"}#",
            b"{\"\xf0\x9f\x87\xa8\":1,}",
            b"{,}",
            b"{",
            b"}",
            b"{]",
            b"{\"a\":1]",
            b"{\"a\"}",
            b"{[]:1}",
            b"{true:1}",
            b"{\"a\":1 \"b\":2}",
            b"{\"a\":/*c*/1}",
            b"{\"a\":1,\n//c\n\"b\":2}",
            b"{ = }",
            b"{a}",
            // Strings.
            b"[\"\\uD800\\\"]",
            b"[\"\\uD800\\u\"]",
            b"[\"\\uD800\\u1\"]",
            b"[\"\\uD800\\u1x\"]",
            b"[\xc3\xa9]",
            b"[\"\\\x00\"]",
            b"[\"\\\\\\\"]",
            b"[\"\\x00\"]",
            b"[\"\\\t\"]",
            b"[\"\\\xf0\x9f\x8c\x80\"]",
            b"[\"\\\"]",
            b"[\"\\u00A\"]",
            b"[\"\\uD834\\uDd\"]",
            b"[\"\\uD800\\uD800\\x\"]",
            b"[\"\\a\"]",
            b"[\"\\uqqqq\"]",
            b"[\\u0020\"asd\"]",
            b"[\\n]",
            b"\"",
            b"['single quote']",
            b"abc",
            b"[\"\\",
            b"[\"a\x00a\"]",
            b"[\"new\nline\"]",
            b"[\"\t\"]",
            b"[\"\x1f\"]",
            b"\"\\UA66D\"",
            b"\"\"x",
            b"\"a",
            b"\"\\\"",
            b"\"\\u000\"",
            b"\"\\e\"",
            b"\"\\'\"",
            b"\"\\0\"",
            b"`a`",
            // Structures.
            b"",
            b" ",
            b"\xef\xbb\xbf",
            b"\xef\xbb\xbf{}",
            b"<.>",
            b"[<null>]",
            b"[1]x",
            b"[1]]",
            b"[\xe2\x81\xa0]",
            b"[][]",
            b"{}}",
            b"{\"\":",
            b"{\"a\": true} \"x\"",
            b"['",
            b"[,",
            b"[{",
            b"[\"a",
            b"[\"a\"",
            b"{,",
            b"{[",
            b"{\"a",
            b"{'a'",
            b"[\"\\{[\"\\{[\"\\{[\"\\{",
            b"\xe9",
            b"*",
            b"{\"a\":\"b\"}#{}",
            b"[\\u000A\"\"]",
            b"[1",
            b"[ false, nul",
            b"[ true, fals",
            b"[ false, tru",
            b"{\"asd\":\"asd\"",
            b"\xc3\xa5",
            b"[\x0c]",
            b"[\x0b]",
            b"[\xc2\xa0]",
            b"[\xe2\x80\x83]",
            b"\x00",
            b"[1]\x00",
            b"2@",
            b"1 2",
            b"null null",
            b"\xff\xfe[\x00]\x00",
            b"\x00[\x00]",
        ],
        false,
    );
}

/// The decisions of this parser where the RFC leaves them open (sections 4, 6, 8 and 9).
#[test]
fn texts_that_the_grammar_leaves_open_are_decided() {
    // Numbers outside the range of `f64` are refused. Numbers that it represents inexactly are
    // parsed, but not as integers.
    all(
        &[
            b"[0.4e00669999999999999999999999999999999999999999999999]",
            b"[1e400]",
            b"[-1e9999]",
            b"[1.5e+9999]",
            b"[123123e100000]",
            b"[-123123e100000]",
            // Strings that are not Unicode.
            b"[\"\\uDADA\"]",
            b"[\"\\uD888\\u1234\"]",
            b"[\"\\uD800\\n\"]",
            b"[\"\\uDd1ea\"]",
            b"[\"\\uD800\\uD800\\n\"]",
            b"[\"\\ud800\"]",
            b"[\"\\ud800abc\"]",
            b"[\"\\uDd1e\\uD834\"]",
            b"[\"\\uDFAA\"]",
            b"{\"\\uDFAA\":0}",
            // Bytes that are not UTF-8.
            b"[\"\xff\"]",
            b"[\"\xe0\xff\"]",
            b"[\"\xed\xa0\x80\"]",
            b"[\"\xc0\xaf\"]",
            b"[\"\xf4\xbf\xbf\xbf\"]",
            b"[\"\x81\"]",
            b"[\"\xfc\x83\xbf\xbf\xbf\xbf\"]",
            b"[\"\xfc\x80\x80\x80\x80\x80\"]",
            b"[\"\xc3\"]",
            b"[\"\xe6\x97\xa5\xd1\x88\xfa\"]",
            b"\xff\xfe[\x00\"\x00\xe9\x00\"\x00]\x00",
            b"\x00[\x00\"\x00\xe9\x00\"\x00]",
            b"{\"\xff\":0}",
            // Duplicate members, of which parsers may use the first or the last.
            b"{\"a\":\"b\",\"a\":\"c\"}",
            b"{\"a\":\"b\",\"a\":\"b\"}",
            b"{\"a\":1,\"\\u0061\":1}",
            b"{\"\":1,\"\":1}",
            b"[{\"x\":{\"a\":1,\"b\":2,\"a\":3}}]",
            b"{\"a\":null,\"a\":null}",
        ],
        false,
    );
    all(
        &[
            b"[1e-400]",
            b"[123e-10000000]",
            b"[-1e-9999]",
            b"[100000000000000000000]",
            b"[-123123123123123123123123123123]",
            b"[123123123123123123123123123123]",
            b"[-237462374673276894279832749832423479823246327846]",
            b"[1.7976931348623157e308]",
            // Names that differ.
            b"{\"a\":1,\"A\":1}",
            b"{\"a\":1,\"a \":1}",
            b"{\"\xc3\xa9\":1,\"e\xcc\x81\":1}",
        ],
        true,
    );
    let is_integer =
        |text: &[u8]| json::parse(text, LIMITS).is_ok_and(|value| value.is_i64() || value.is_u64());
    for (text, integer) in [
        (&b"18446744073709551615"[..], true),
        (b"18446744073709551616", false),
        (b"-9223372036854775808", true),
        (b"-9223372036854775809", false),
        (b"1.0", false),
        (b"1e0", false),
        (b"10E-1", false),
        (b"-0", false),
    ] {
        assert_eq!(is_integer(text), integer, "{}", text.escape_ascii());
    }
}

#[test]
fn deep_or_long_texts_are_refused_before_they_are_stored() {
    let nested = |open: &str, close: &str, levels: usize| {
        [open.repeat(levels), close.repeat(levels)].concat()
    };
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
        let steps = open.matches(['[', '{']).count();
        let close_at = |levels: usize| {
            let inner = if open.ends_with(':') { "1" } else { "" };
            [open.repeat(levels), inner.to_owned(), close.repeat(levels)].concat()
        };
        assert!(
            reads(close_at(32 / steps).as_bytes()),
            "{open} at the limit"
        );
        assert!(
            !reads(close_at(32 / steps + 1).as_bytes()),
            "{open} beyond it"
        );
    }
    for (open, close) in [
        ("[", "]"),
        ("[", ""),
        ("{\"\":", "}"),
        ("{\"\":", ""),
        ("[{\"\":", ""),
    ] {
        assert!(
            !reads(nested(open, close, 2_000).as_bytes()),
            "{open}{close}"
        );
    }
    // Larger than the stack of a recursive parser. The depth is limited, not only the size.
    let roomy = Limits {
        bytes: 64 * 1024 * 1024,
        depth: 32,
    };
    for open in ["[", "{\"\":", "[{\"\":"] {
        let error = json::parse(open.repeat(1_000_000).as_bytes(), roomy).unwrap_err();
        assert_eq!(error.message, "nested too deeply");
        assert!(
            error.column < 512,
            "it stopped at the depth: {}",
            error.column
        );
    }
    let full = format!("\"{}\"", "a".repeat(16 * 1024 - 2));
    assert!(reads(full.as_bytes()));
    assert!(!reads(format!("{full} ").as_bytes()));
}
