//! Asks a target for its schema by server reflection: v1, or if the target lacks it v1alpha, which has the same
//! messages.
//!
//! The messages are few, so the code for them is hand-written (grpc/reflection/v1/reflection.proto).

use super::Server;
use super::methods::no_service;
use crate::grpc::Code;
use crate::transport::h2::request::Rendered;
use crate::transport::h2::single_call::Once;
use prost_reflect::DescriptorPool;
use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::FileDescriptorProto;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use weir_report::units::shown;

/// Longest answer: the descriptors of very large interfaces take a few MiB.
const ANSWER_MOST: usize = 16 * 1024 * 1024;

/// Most files that one service may need.
const FILES_MOST: usize = 10_000;

const VERSIONS: [&str; 2] = ["v1", "v1alpha"];

/// The question, by its number in `ServerReflectionRequest`.
#[derive(Clone, Copy)]
enum Ask<'a> {
    File(&'a str),
    Services,
    Symbol(&'a str),
}

/// The answer.
#[derive(Debug, Default)]
struct Answer {
    files: Vec<FileDescriptorProto>,
    services: Vec<String>,
    /// Code and text of an error.
    error: Option<(u64, String)>,
}

/// All files that describe a service, and the reflection version that returned them.
pub(super) fn files(server: &Server<'_>, service: &str) -> Result<(DescriptorPool, &'static str), String> {
    run(server, async |session: &mut Session| {
        let answers = session.ask(&[Ask::Symbol(service)]).await?;
        let answer = answers.into_iter().next().unwrap_or_default();
        if let Some((code, text)) = answer.error {
            if code != Code::NOT_FOUND.index() as u64 {
                return Err(format!("reflection of `{service}`: {text}"));
            }
            return Err(no_service(service, &session.services().await?));
        }
        let pool = session.complete(answer.files).await?;
        Ok((pool, session.version))
    })
}

/// The services of the target, without reflection itself.
pub(super) fn services(server: &Server<'_>) -> Result<Vec<String>, String> {
    run(server, async |session: &mut Session| session.services().await)
}

fn run<T>(
    server: &Server<'_>,
    work: impl AsyncFnOnce(&mut Session) -> Result<T, String>,
) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| e.to_string())?;
    let all = async {
        let mut session = Session::open(server).await?;
        work(&mut session).await
    };
    let outcome = runtime.block_on(async { tokio::time::timeout(server.timeout, all).await });
    let outcome = outcome.unwrap_or_else(|_| Err("the target did not answer in time".to_owned()));
    outcome.map_err(|text| {
        format!("{text} (the target was asked by server reflection; --proto or --protoset say it otherwise)")
    })
}

/// A connection for reflection.
struct Session {
    once: Once,
    head: Rendered,
    version: &'static str,
}

impl Session {
    /// Connects, and finds out which version the target supports.
    async fn open(server: &Server<'_>) -> Result<Self, String> {
        for version in VERSIONS {
            let once = Once::open(server.origin, server.timeout, ANSWER_MOST).await?;
            let mut session = Self { once, head: head(server, version), version };
            let reply = session.once.ask(&session.head, request(&[Ask::Services])).await?;
            match reply.code {
                Code::OK => return Ok(session),
                Code::UNIMPLEMENTED => {}
                code => return Err(format!("the target answers {}: {}", code.name(), reply.text)),
            }
        }
        Err("the target has no server reflection".to_owned())
    }

    async fn ask(&mut self, asks: &[Ask<'_>]) -> Result<Vec<Answer>, String> {
        let reply = self.once.ask(&self.head, request(asks)).await?;
        if reply.code != Code::OK {
            return Err(format!("the target answers {}: {}", reply.code.name(), reply.text));
        }
        let answers = answers(&reply.body).filter(|all| all.len() == asks.len());
        answers.ok_or_else(|| "the target's answer is not server reflection".to_owned())
    }

    async fn services(&mut self) -> Result<Vec<String>, String> {
        let answers = self.ask(&[Ask::Services]).await?;
        let names = answers.into_iter().flat_map(|a| a.services);
        Ok(names.filter(|name| !name.starts_with("grpc.reflection.")).collect())
    }

    /// Asks for the files' imports, and for the imports of those, until none is missing.
    async fn complete(&mut self, files: Vec<FileDescriptorProto>) -> Result<DescriptorPool, String> {
        let known = DescriptorPool::global(); // those of google.protobuf, which servers may not return
        let mut all: BTreeMap<String, FileDescriptorProto> = BTreeMap::new();
        all.extend(files.into_iter().map(|f| (f.name().to_owned(), f)));
        loop {
            let missing: Vec<String> = all
                .values()
                .flat_map(|f| f.dependency.iter())
                .filter(|name| !all.contains_key(*name) && known.get_file_by_name(name).is_none())
                .cloned()
                .collect();
            if missing.is_empty() {
                break;
            }
            if all.len() + missing.len() > FILES_MOST {
                return Err(format!("the service needs more than {FILES_MOST} files"));
            }
            let asks: Vec<Ask<'_>> = missing.iter().map(|name| Ask::File(name)).collect();
            for (name, answer) in missing.iter().zip(self.ask(&asks).await?) {
                all.extend(answer.files.into_iter().map(|f| (f.name().to_owned(), f)));
                if !all.contains_key(name) {
                    let why = answer.error.map(|(_, text)| text).unwrap_or_default();
                    return Err(format!("the target does not describe {name}: {why}"));
                }
            }
        }
        let mut pool = known;
        all.retain(|name, _| pool.get_file_by_name(name).is_none());
        let added = pool.add_file_descriptor_protos(all.into_values());
        added.map_err(|e| format!("the target's descriptors are inconsistent: {e:?}"))?;
        Ok(pool)
    }
}

/// The head of the reflection call.
fn head(server: &Server<'_>, version: &str) -> Rendered {
    let mut head = format!(
        "POST /grpc.reflection.{version}.ServerReflection/ServerReflectionInfo HTTP/1.1\r\nHost: {}\r\nTE: trailers\r\n\
         Content-Type: application/grpc\r\n",
        server.authority
    );
    for (name, value) in server.fields {
        let _ = write!(head, "{name}: {value}\r\n"); // writing to a String cannot fail
    }
    head.push_str("\r\n");
    Rendered::new(head.as_bytes(), server.scheme, false)
}

// === messages ===

/// Encodes `ServerReflectionRequest`s, framed.
fn request(asks: &[Ask<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for ask in asks {
        let (field, text) = match ask {
            Ask::File(name) => (3, *name),
            Ask::Services => (7, "*"),
            Ask::Symbol(name) => (4, *name),
        };
        let mut message = vec![field << 3 | 2];
        prost_reflect::prost::encoding::encode_varint(text.len() as u64, &mut message);
        message.extend_from_slice(text.as_bytes());
        out.push(0);
        out.extend_from_slice(&(message.len() as u32).to_be_bytes());
        out.extend_from_slice(&message);
    }
    out
}

/// Decodes framed `ServerReflectionResponse`s; `None` if the body is malformed.
fn answers(body: &[u8]) -> Option<Vec<Answer>> {
    let (mut rest, mut all) = (body, Vec::new());
    while !rest.is_empty() {
        let (header, after) = rest.split_first_chunk::<5>()?;
        let [_, len @ ..] = *header;
        let (message, next) = after.split_at_checked(u32::from_be_bytes(len) as usize)?;
        all.push(answer(message)?);
        rest = next;
    }
    Some(all)
}

fn answer(message: &[u8]) -> Option<Answer> {
    let mut answer = Answer::default();
    for (field, _, bytes) in fields(message)? {
        match field {
            4 => {
                for (_, _, file) in fields(bytes)?.into_iter().filter(|(f, ..)| *f == 1) {
                    answer.files.push(FileDescriptorProto::decode(file).ok()?);
                }
            }
            6 => {
                for (_, _, service) in fields(bytes)?.into_iter().filter(|(f, ..)| *f == 1) {
                    let name = fields(service)?.into_iter().find(|(f, ..)| *f == 1);
                    answer.services.extend(name.map(|(_, _, n)| shown(n)));
                }
            }
            7 => {
                let parts = fields(bytes)?;
                let code = parts.iter().find(|(f, ..)| *f == 1).map_or(2, |(_, n, _)| *n);
                let text = parts.iter().find(|(f, ..)| *f == 2).map(|(.., t)| shown(t));
                answer.error = Some((code, text.unwrap_or_default()));
            }
            _ => {}
        }
    }
    Some(answer)
}

/// The fields of a message: tag, and the number or the bytes of its value.
fn fields(message: &[u8]) -> Option<Vec<(u64, u64, &[u8])>> {
    let (mut rest, mut all) = (message, Vec::new());
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let (mut number, mut bytes) = (0, &[][..]);
        let fixed = match key & 7 {
            0 => {
                number = varint(&mut rest)?;
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut rest)?).ok()?,
            5 => 4,
            _ => return None,
        };
        if fixed > 0 {
            (bytes, rest) = rest.split_at_checked(fixed)?;
        }
        all.push((key >> 3, number, bytes));
    }
    Some(all)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    prost_reflect::prost::encoding::decode_varint(rest).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let framed = |message: &[u8]| [&[0, 0, 0, 0, message.len() as u8], message].concat();
        let services = framed(b"\x0a\x01h\x32\x0a\x0a\x03\x0a\x01a\x0a\x03\x0a\x01b");
        let error = framed(b"\x3a\x06\x08\x05\x12\x02\x1bo");
        let file = framed(b"\x22\x05\x0a\x03\x0a\x01f");
        let all = answers(&[services, error, file].concat()).unwrap();
        assert_eq!(all[0].services, ["a", "b"]);
        assert_eq!(all[1].error, Some((5, " o".to_owned())));
        assert_eq!(all[2].files[0].name(), "f");
        for bad in [&b"\0\0\0\0\x02x"[..], b"\0", b"\0\0\0\0\x01\x0a", b"\0\0\0\0\x04\x22\x02\x0a\x05"] {
            assert!(answers(bad).is_none(), "{bad:?}");
        }
        assert_eq!(request(&[Ask::Symbol("a.B")]), b"\0\0\0\0\x05\x22\x03a.B");
    }
}
