//! The reader of ClientHellos in weir-wire, compiled from its own file: what decides it stays decided, it never asks for
//! more than its limit or for bytes that are there, and a name is one that can be compared.

#[allow(dead_code)]
#[path = "../../crates/weir-wire/src/client_hello.rs"]
mod reader;

use reader::{HELLO_BYTES, Hello, server_name};

/// Reads a name from the input and from each of its beginnings.
pub fn client_hello(input: &[u8]) {
    let whole = server_name(input);
    let mut needed = 0;
    for end in 0..=input.len() {
        match server_name(&input[..end]) {
            Hello::More(more) => {
                assert!(more > end && more <= HELLO_BYTES, "{end} bytes need {more}");
                needed = more;
            }
            decided => {
                assert!(end >= needed, "decided by {end} bytes where {needed} are needed");
                assert_eq!(decided, whole, "decided by {end} bytes");
                break;
            }
        }
    }
    if let Hello::Name(name) = whole {
        assert!((1..=253).contains(&name.len()) && !name.ends_with('.'));
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
        assert!(name.bytes().all(fits) && !name.contains(".."), "{name}");
        assert!(name.parse::<std::net::IpAddr>().is_err(), "{name}");
    }
}
