//! Our QPACK behind a line protocol, so that `conformance/qpack.py` can have another implementation talk to it.
//!
//! usage: qpack_lines CAPACITY BLOCKED. Each line on stdin is a command, and gets a line on stdout; bytes are in
//! hexadecimal digits, and fields are `NAME:VALUE` with commas between them.
//!
//! `i BYTES`: the peer's encoder stream. Answer: what our decoder stream gets.
//! `s STREAM BYTES`: a section. Answer: `blocked`, or what our decoder stream gets, and the fields.
//! `c STREAM`: the stream is cancelled. Answer: what our decoder stream gets.
//! `e STREAM FIELDS`: fields to encode. Answer: what our encoder stream gets, and the section.
//! `a BYTES`: the peer's decoder stream. Answer: nothing.

use std::io::{BufRead, Write};
use std::ops::ControlFlow;
use weir_fields::render::Encode;
use weir_h3::qpack::{Decoded, Decoder, DecoderLimits, Encoder};

fn main() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let mut number = || args.next()?.parse::<usize>().ok();
    let (Some(capacity), Some(blocked)) = (number(), number()) else {
        return Err("usage: qpack_lines CAPACITY BLOCKED".to_owned());
    };
    let mut decoder = Decoder::new(DecoderLimits { capacity, blocked });
    let mut encoder = Encoder::new(capacity);
    encoder.allow(capacity as u64);
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let answer = answer(&line, &mut decoder, &mut encoder).map_err(|rule| format!("{line}: {rule}"))?;
        writeln!(out, "{answer}").and_then(|()| out.flush()).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn answer(line: &str, decoder: &mut Decoder, encoder: &mut Encoder) -> Result<String, String> {
    let mut words = line.split(' ');
    let (command, first) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let second = words.next().unwrap_or_default();
    let stream = || first.parse::<u64>().map_err(|e| e.to_string());
    let mut answers = Vec::new();
    match command {
        "i" => {
            decoder.instructions(&bytes(first)?)?;
            decoder.acknowledge(&mut answers);
            Ok(digits(&answers))
        }
        "s" => {
            let mut fields = Vec::new();
            let decoded = decoder.decode(stream()?, &bytes(second)?, &mut answers, |name, value| {
                fields.push(format!("{}:{}", digits(name), digits(value)));
                ControlFlow::Continue(())
            });
            Ok(match decoded.map_err(|e| e.0)? {
                Decoded::Blocked(_) => "blocked".to_owned(),
                Decoded::Done => format!("{} {}", digits(&answers), fields.join(",")),
            })
        }
        "c" => {
            decoder.cancel(stream()?, &mut answers);
            Ok(digits(&answers))
        }
        "e" => {
            let (mut section, mut lines) = (Vec::new(), Vec::new());
            encoder.begin();
            for field in second.split(',').filter(|field| !field.is_empty()) {
                let (name, value) = field.split_once(':').ok_or("a field without a colon")?;
                encoder.encode(&bytes(name)?, &bytes(value)?, false, &mut lines);
            }
            encoder.finish(stream()?, &mut section);
            section.append(&mut lines);
            let instructions = std::mem::take(encoder.instructions());
            Ok(format!("{} {}", digits(&instructions), digits(&section)))
        }
        "a" => Ok(encoder.answers(&bytes(first)?).map(|_| String::new())?),
        other => Err(format!("no command '{other}'")),
    }
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let byte = |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let all: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    all.ok_or_else(|| format!("'{text}' is no hexadecimal text"))
}
