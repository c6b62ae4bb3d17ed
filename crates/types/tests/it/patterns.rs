//! Patterns that exhausted other regex engines. The size of accepted patterns is limited, and
//! matching a path takes one pass. The tests check results that do not depend on the machine: the
//! refusals, and that the longest text with the largest pattern terminates.

use types::pattern::{BadPattern, Pattern};

#[test]
fn ed_7_a_pattern_is_refused_by_its_size_before_it_is_built() {
    let nested = |levels: usize| format!("{}a{}", "(".repeat(levels), ")".repeat(levels));
    for large in [
        "a".repeat(1025),
        "\u{e9}".repeat(513),
        "(a{1000}){1000}".to_owned(),
        "((((a{30}){30}){30}){30}){30}".to_owned(),
        "(((a{0,50}){0,50}){0,50})".to_owned(),
        r"\w{500}".to_owned(),
        r"\pL{300}".to_owned(),
        r"(\p{Greek}|\p{Han}|\p{Latin}){200}".to_owned(),
        r"[\w\W]{900}".to_owned(),
        "(a|b|c|d){5000}".to_owned(),
        "a{2147483647}".to_owned(),
        "(?:(?:a?){100}){100}(?:a{100}){100}".to_owned(),
    ] {
        assert_eq!(
            Pattern::parse(&large).unwrap_err(),
            BadPattern::TooLarge,
            "{large}"
        );
    }
    for bad in [
        nested(33),
        nested(500),
        "a{4294967296}".to_owned(),
        "a{99999999999999999999}".to_owned(),
        "a{2,1}".to_owned(),
        "*".repeat(1000),
        "[".repeat(1000),
        "(?:".repeat(300),
        r"\".to_owned(),
        r"\x{110000}".to_owned(),
        r"\p{Nothing}".to_owned(),
        "[z-a]".to_owned(),
    ] {
        assert_eq!(
            Pattern::parse(&bad).unwrap_err(),
            BadPattern::Unsupported,
            "{bad}"
        );
    }
}

/// Classic cases of catastrophic backtracking, on texts for which a backtracking engine needs 2^n
/// or n^k steps. n is the longest target of a request, so this test either ends or hangs.
#[test]
fn ed_7_a_pattern_is_matched_in_one_pass() {
    let longest = 8 * 1024;
    let of = |piece: &str| format!("/{}!", piece.repeat((longest - 2) / piece.len()));
    for (pattern, piece) in [
        ("/(a+)+", "a"),
        ("/(a*)*", "a"),
        ("/(a|a)*", "a"),
        ("/(a|aa)+", "a"),
        ("/(a?){64}a{64}", "a"),
        ("/(.*a){20}", "a"),
        ("/.*.*.*.*.*.*.*.*.*.*=", "a"),
        ("/([a-z]+/?)+", "ab/"),
        ("/(([a-z])+.)+[A-Z]([a-z])+", "a"),
        (r"/(\w+\s?)*", "a"),
        (r"/([\w.-]+)+@([\w.-]+)+", "a."),
        ("/(x+x+)+y", "x"),
        ("^/(([^/]+)/)*$", "a/"),
        ("/(%[0-9A-F]{2}|[a-z])*", "%41"),
        ("/(A|a|[aA])*", "a"),
        ("/((((((((((a*)*)*)*)*)*)*)*)*)*)", "a"),
    ] {
        let pattern = Pattern::parse(pattern).unwrap();
        assert!(!pattern.matches(&of(piece)), "{pattern:?}");
    }
}
