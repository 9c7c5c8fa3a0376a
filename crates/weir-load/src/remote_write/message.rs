//! The message of remote write 1.0 in protobuf: a `WriteRequest` of `TimeSeries`, each with `Label`s and one
//! `Sample`. Written by hand, because it needs only three kinds of messages with two kinds of fields.
//!
//! Source: prometheus/prompb/remote.proto and types.proto; protobuf's encoding guide.

/// One series with its current value.
pub(super) struct Series {
    /// Sorted by name.
    pub(super) labels: Vec<(String, String)>,
    pub(super) value: f64,
}

/// Encodes all series for one time, in milliseconds since 1970.
pub(super) fn encode(series: &[Series], unix_ms: u64) -> Vec<u8> {
    let mut request = Vec::new();
    for one in series {
        let mut message = Vec::new();
        for (name, value) in &one.labels {
            let mut label = Vec::new();
            bytes(&mut label, 1, name.as_bytes());
            bytes(&mut label, 2, value.as_bytes());
            bytes(&mut message, 1, &label);
        }
        // The value has tag 1 and type 1 (a double), the time tag 2 and type 0 (a varint).
        let mut sample = vec![1 << 3 | 1];
        sample.extend(one.value.to_le_bytes());
        sample.push(2 << 3);
        varint(&mut sample, unix_ms);
        bytes(&mut message, 2, &sample);
        bytes(&mut request, 1, &message);
    }
    request
}

/// A field of bytes: a text or a message.
fn bytes(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    out.push(tag << 3 | 2);
    varint(out, value.len() as u64);
    out.extend(value);
}

/// Seven bits per byte, the lowest first.
fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n > 0x7f {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_what_protoc_makes_of_it() {
        let series = Series { labels: vec![("__name__".to_owned(), "a".to_owned())], value: 1.5 };
        let want = [
            &[0x0a, 29][..],
            &[0x0a, 13, 0x0a, 8],
            b"__name__",
            &[0x12, 1],
            b"a",
            &[0x12, 12, 0x09, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0x10, 0xac, 0x02],
        ];
        assert_eq!(encode(&[series], 300), want.concat());
    }
}
