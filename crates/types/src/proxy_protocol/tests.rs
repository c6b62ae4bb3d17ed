use proptest::prelude::*;

use super::*;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn header(source: Option<&str>, len: usize) -> ParsedHeader {
    ParsedHeader::Header {
        source: source.map(addr),
        len,
    }
}

/// A version 2 header with this command, family byte and block.
fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let mut bytes = V2_SIGNATURE.to_vec();
    bytes.extend([command, family]);
    bytes.extend(u16::try_from(block.len()).unwrap().to_be_bytes());
    bytes.extend(block);
    bytes
}

#[test]
fn lines_of_version_1() {
    let longest_v6 = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    for (line, source) in [
        (
            "PROXY TCP4 192.0.2.1 198.51.100.1 40000 443",
            Some("192.0.2.1:40000"),
        ),
        (
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535",
            Some("255.255.255.255:65535"),
        ),
        ("PROXY TCP4 192.0.2.1 0.0.0.0 0 0", Some("192.0.2.1:0")),
        (
            "PROXY TCP6 2001:db8::1 2001:DB8::2 40000 443",
            Some("[2001:db8::1]:40000"),
        ),
        (
            "PROXY TCP6 ::ffff:192.0.2.1 ::1 40000 443",
            Some("192.0.2.1:40000"),
        ),
        (
            &format!("PROXY TCP6 {longest_v6} {longest_v6} 65535 65535"),
            Some(&format!("[{longest_v6}]:65535")),
        ),
        ("PROXY UNKNOWN", None),
        (
            &format!("PROXY UNKNOWN {longest_v6} {longest_v6} 65535 65535"),
            None,
        ),
        ("PROXY UNKNOWN what\nit \0says", None),
    ] {
        let bytes = format!("{line}\r\nGET /");
        let len = line.len() + 2;
        assert!(len <= 107, "{line}");
        assert_eq!(parse(bytes.as_bytes()), header(source, len), "{line}");
    }
}

#[test]
fn lines_that_are_refused() {
    for line in [
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        "PROXY TCP4 192.0.2.1  192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1\t192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.256 192.0.2.2 1 2\r\n",
        "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 2001:db8::2 1 2\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 -1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 \r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\rGET",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 \u{0662}\r\n",
    ] {
        assert_eq!(parse(line.as_bytes()), ParsedHeader::Malformed, "{line:?}");
    }
    assert_eq!(parse(b"PROXY TCP4 \xFF\r\n"), ParsedHeader::Malformed);
}

#[test]
fn a_line_ends_within_107_bytes() {
    let line = |len: usize| {
        let mut line = b"PROXY UNKNOWN ".to_vec();
        line.resize(len - 2, b'x');
        line.extend(b"\r\n");
        line
    };
    assert_eq!(parse(&line(107)), header(None, 107));
    assert_eq!(parse(&line(107)[..106]), ParsedHeader::Partial);
    assert_eq!(parse(&line(108)), ParsedHeader::Malformed);
    assert_eq!(parse(&line(108)[..107]), ParsedHeader::Malformed);
    assert_eq!(parse(&line(200)[..107]), ParsedHeader::Malformed);
}

#[test]
fn blocks_of_version_2() {
    let v4 = [192, 0, 2, 1, 198, 51, 100, 1, 0x9C, 0x40, 1, 0xBB];
    let mut v6 = addr6("2001:db8::1").to_vec();
    v6.extend(addr6("2001:db8::2"));
    v6.extend([0x9C, 0x40, 1, 0xBB]);
    let mut mapped = addr6("::ffff:192.0.2.1").to_vec();
    mapped.extend([0; 20]);
    let mut extended = v4.to_vec();
    extended.extend([4, 0, 2, 0, 0, 0xEA, 0xFF]);
    for (name, bytes, source) in [
        ("IPv4", v2(0x21, 0x11, &v4), Some("192.0.2.1:40000")),
        ("IPv6", v2(0x21, 0x21, &v6), Some("[2001:db8::1]:40000")),
        ("IPv4 inside", v2(0x21, 0x21, &mapped), Some("192.0.2.1:0")),
        (
            "extensions, broken ones too",
            v2(0x21, 0x11, &extended),
            Some("192.0.2.1:40000"),
        ),
        ("LOCAL", v2(0x20, 0x00, &[]), None),
        ("LOCAL with addresses", v2(0x20, 0x11, &v4), None),
        ("LOCAL of any family", v2(0x20, 0xFF, &v4), None),
        ("unspecified", v2(0x21, 0x00, &v4), None),
        ("unspecified transport", v2(0x21, 0x10, &v4), None),
        ("datagrams", v2(0x21, 0x12, &v4), None),
        ("a Unix socket", v2(0x21, 0x31, &[0; 216]), None),
    ] {
        let mut sent = bytes.clone();
        sent.extend(b"\x16\x03\x01");
        assert_eq!(parse(&sent), header(source, bytes.len()), "{name}");
    }
}

fn addr6(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().unwrap().octets()
}

#[test]
fn blocks_that_are_refused() {
    for (name, bytes) in [
        ("version 1", v2(0x11, 0x11, &[0; 12])),
        ("version 3", v2(0x31, 0x11, &[0; 12])),
        ("another command", v2(0x22, 0x11, &[0; 12])),
        ("another family", v2(0x21, 0x41, &[0; 12])),
        ("another transport", v2(0x21, 0x13, &[0; 12])),
        ("half an IPv4 block", v2(0x21, 0x11, &[0; 11])),
        ("half an IPv6 block", v2(0x21, 0x21, &[0; 35])),
        ("no block", v2(0x21, 0x11, &[])),
        ("longer than is read", v2(0x21, 0x11, &[0; MAX_HEADER - 15])),
    ] {
        assert_eq!(parse(&bytes), ParsedHeader::Malformed, "{name}");
    }
    let longest = v2(0x21, 0x11, &[0; MAX_HEADER - 16]);
    assert_eq!(parse(&longest), header(Some("0.0.0.0:0"), MAX_HEADER));
    // Refused before its block has arrived, and before its head has.
    assert_eq!(
        parse(&v2(0x21, 0x11, &[0; 4096])[..16]),
        ParsedHeader::Malformed
    );
    assert_eq!(parse(&v2(0x41, 0, &[])[..13]), ParsedHeader::Malformed);
}

#[test]
fn other_protocols_are_not_headers() {
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01"[..],
        b"GET / HTTP/1.1\r\n",
        b"PUT / HTTP/1.1\r\n",
        b"PROPFIND / HTTP/1.1\r\n",
        b"PROXY/1.1",
        b"PRI * HTTP/2.0\r\n",
        b"SSH-2.0-x\r\n",
        b"\r\nGET / HTTP/1.1\r\n",
        b"proxy TCP4",
        b"\0",
    ] {
        assert_eq!(
            parse(bytes),
            ParsedHeader::Absent,
            "{}",
            bytes.escape_ascii()
        );
    }
    assert_eq!(parse(b""), ParsedHeader::Partial);
    assert_eq!(parse(b"P"), ParsedHeader::Partial);
    assert_eq!(parse(b"\r\n\r\n"), ParsedHeader::Partial);
}

#[test]
fn headers_are_written_as_in_the_specification() {
    let written = |version: fn(Option<SocketAddr>, SocketAddr, &mut Vec<u8>), source| {
        let mut out = Vec::new();
        version(source, addr("198.51.100.1:443"), &mut out);
        out
    };
    for (source, line) in [
        (
            Some("192.0.2.1:40000"),
            "PROXY TCP4 192.0.2.1 198.51.100.1 40000 443\r\n",
        ),
        (
            Some("[::ffff:192.0.2.1]:0"),
            "PROXY TCP4 192.0.2.1 198.51.100.1 0 443\r\n",
        ),
        (
            Some("[2001:db8::1]:40000"),
            "PROXY TCP6 2001:db8::1 ::ffff:198.51.100.1 40000 443\r\n",
        ),
        (None, "PROXY UNKNOWN\r\n"),
    ] {
        let out = written(write_v1, source.map(addr));
        assert_eq!(String::from_utf8(out).unwrap(), line);
    }
    let block = [192, 0, 2, 1, 198, 51, 100, 1, 0x9C, 0x40, 1, 0xBB];
    assert_eq!(
        written(write_v2, Some(addr("192.0.2.1:40000"))),
        v2(0x21, 0x11, &block)
    );
    assert_eq!(written(write_v2, None), v2(0x21, 0x00, &[]));
}

fn any_addr() -> impl Strategy<Value = SocketAddr> {
    let v4 = any::<[u8; 4]>().prop_map(IpAddr::from);
    let v6 = any::<[u8; 16]>().prop_map(IpAddr::from);
    (prop_oneof![v4, v6], any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

/// Bytes of which about half look like a header.
fn near_header() -> impl Strategy<Value = Vec<u8>> {
    let rest = proptest::collection::vec(any::<u8>(), 0..600);
    let words = "[PROXYTCUNKW46 0-9a-f.:\r\n]{0,110}".prop_map(String::into_bytes);
    let start = prop_oneof![
        Just(V2_SIGNATURE.to_vec()),
        Just([V2_SIGNATURE, &b"\x21\x11\x00\x0C"[..]].concat()),
        Just(b"PROXY ".to_vec()),
        Just(Vec::new()),
    ];
    (start, prop_oneof![rest, words]).prop_map(|(start, rest)| [start, rest].concat())
}

/// A reader that follows it ends exactly at the end of the header.
#[test]
fn the_next_part_never_exceeds_the_header() {
    let to = addr("198.51.100.1:443");
    let mut headers = vec![
        b"PROXY UNKNOWN\r\n".to_vec(),
        v2(VERSION_2 | LOCAL, 0, b"extension"),
    ];
    for source in [
        None,
        Some(addr("192.0.2.1:40000")),
        Some(addr("[2001:db8::1]:1")),
    ] {
        for write in [write_v1, write_v2] {
            let mut header = Vec::new();
            write(source, to, &mut header);
            headers.push(header);
        }
    }
    for header in headers {
        let mut read = 0;
        while read < header.len() {
            assert!(parse(&header[..read]) == ParsedHeader::Partial);
            read += next_part(&header[..read]);
        }
        assert_eq!(read, header.len(), "{header:?}");
    }
}

proptest! {
    #[test]
    fn written_headers_are_read_back(
        source in proptest::option::of(any_addr()),
        destination in any_addr(),
        binary in any::<bool>(),
        behind in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = Vec::new();
        if binary {
            write_v2(source, destination, &mut bytes);
        } else {
            write_v1(source, destination, &mut bytes);
        }
        let len = bytes.len();
        let source = source.map(|source| SocketAddr::new(source.ip().to_canonical(), source.port()));
        for short in 0..len {
            prop_assert_eq!(parse(&bytes[..short]), ParsedHeader::Partial);
        }
        bytes.extend(behind);
        prop_assert_eq!(parse(&bytes), ParsedHeader::Header { source, len });
    }

    /// Parsing in pieces and parsing everything together agree, and a result is final.
    #[test]
    fn the_result_does_not_depend_on_the_split(bytes in near_header()) {
        let verdicts = (0..=bytes.len()).map(|len| parse(&bytes[..len]));
        let first = verdicts.clone().find(|verdict| *verdict != ParsedHeader::Partial);
        prop_assert_eq!(first.unwrap_or(ParsedHeader::Partial), parse(&bytes));
        if let ParsedHeader::Header { len, .. } = parse(&bytes) {
            prop_assert!(len <= MAX_HEADER && len <= bytes.len());
            prop_assert_eq!(parse(&bytes[..len - 1]), ParsedHeader::Partial);
        }
        prop_assert!(bytes.len() < MAX_HEADER || parse(&bytes) != ParsedHeader::Partial);
    }
}
