//! Fuzzing of weir-traffic: the readers of recordings.

use std::io::{BufReader, ErrorKind};
use weir_traffic::{Form, PEEK_BYTES, Reader, Record, is_sendable};

/// No recording makes a reader panic or loop, whatever form it is taken for, and how it is cut into reads changes
/// nothing. What counts as sendable has no byte that would end a line or a word.
pub fn traffic(input: &[u8]) {
    let Some((choice, recording)) = input.split_first() else { return };
    let named = ["weir", "jsonl", "combined", "common", "alb", "elb", "har", "gor", "$msec $request_uri|$request_body"];
    let form = match named.get(usize::from(*choice)) {
        Some(name) => Form::named(name).ok(),
        None => Form::of(recording.get(..PEEK_BYTES).unwrap_or(recording)),
    };
    let Some(form) = form else { return };
    let whole = records(&form, recording, 1 << 16);
    assert_eq!(whole, records(&form, recording, 3), "short reads change what is read");
    for record in whole.iter().flatten() {
        let Record::Request(request) = record else { continue };
        if !is_sendable(request) {
            continue;
        }
        let line = format!("{} {}", request.method, request.target);
        assert!(line.split(' ').count() == 2 && line.bytes().all(|b| b >= b' '), "{line:?}");
        assert!(request.target.starts_with('/') || request.target == "*");
        for (name, value) in &request.fields {
            let ends = |bytes: &[u8]| bytes.iter().any(|b| b"\r\n\0".contains(b));
            assert!(!ends(name.as_bytes()) && !ends(value) && !name.contains(':'));
        }
    }
}

fn records(form: &Form, recording: &[u8], read: usize) -> Vec<Result<Record, &'static str>> {
    let mut reader = Reader::new(form.clone(), BufReader::with_capacity(read, recording));
    let mut all = Vec::new();
    loop {
        match reader.record() {
            Ok(Some((_, record))) => all.push(record),
            Ok(None) => return all,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::UnexpectedEof, "a HAR file that ends inside is the only failure");
                return all;
            }
        }
        assert!(all.len() <= recording.len() + 1, "more records than bytes");
    }
}
