//! Decodes and encodes compressed bodies with the libraries that browsers and curl use, or similar ones.

use std::io::Write;

/// Decodes bytes in this coding (`br`, `gzip` or `zstd`) as far as they go, up to 4 MiB.
pub fn decoded(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 << 20);
    match coding {
        "br" => {
            let mut reader = brotli::DecompressorWriter::new(Vec::new(), 4096);
            reader.write_all(bytes).unwrap();
            reader.flush().unwrap();
            out.clone_from(reader.get_ref());
        }
        "gzip" => {
            let mut reader = flate2::Decompress::new_gzip(15);
            reader.decompress_vec(bytes, &mut out, flate2::FlushDecompress::Sync).unwrap();
        }
        "zstd" => {
            let mut reader = zstd_safe::DCtx::create();
            let mut input = zstd_safe::InBuffer::around(bytes);
            while input.pos() < bytes.len() {
                let at = out.len();
                reader
                    .decompress_stream(&mut zstd_safe::OutBuffer::around_pos(&mut out, at), &mut input)
                    .unwrap();
            }
        }
        other => panic!("{other} is no coding"),
    }
    out
}

/// Compresses bytes with gzip.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
