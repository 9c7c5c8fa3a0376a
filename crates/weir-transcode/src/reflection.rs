//! Queries a server for its services: server reflection, v1 and as a fallback v1alpha. Bytes only; the caller sends
//! them.
//!
//! Source: grpc/reflection/v1/reflection.proto of the gRPC project.

use crate::frames::{self, FrameError, Messages};
use crate::sources::{FILES, SET_BYTES};
use crate::wire::{self, Value};
use std::collections::BTreeSet;

/// The paths of v1 and v1alpha.
const PATHS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Most services of a server.
const SERVICES: usize = 1000;

/// Rounds of requests: each asks for all files that the previous ones import.
const ROUNDS: usize = 64;

/// Largest response to one round, in bytes.
pub const ANSWER_BYTES: usize = SET_BYTES + 1024 * 1024;

/// A reflection exchange with a server.
#[derive(Debug)]
pub struct Asking {
    version: usize,
    rounds: usize,
    stage: Stage,
    /// The requests whose responses must come.
    asked: Vec<Question>,
    files: Vec<Vec<u8>>,
    names: BTreeSet<String>,
    bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Question {
    File(String),
    Services,
    Symbol(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asking,
    Done,
}

/// The next step.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this as a gRPC call, and pass the whole response to [`Asking::answer`].
    Ask {
        /// The path to call.
        path: &'static str,
        /// The request body.
        body: Vec<u8>,
    },
    /// The descriptors of all files.
    Done(Vec<Vec<u8>>),
}

impl Asking {
    /// Queries these services, or all that the server has.
    #[must_use]
    pub fn new(services: &[String]) -> Self {
        let asked = match services {
            [] => vec![Question::Services],
            some => some.iter().cloned().map(Question::Symbol).collect(),
        };
        Self {
            version: 0,
            rounds: 0,
            stage: Stage::Asking,
            asked,
            files: Vec::new(),
            names: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// The next request, or the result.
    pub fn advance(&mut self) -> Next {
        match self.stage {
            Stage::Done => Next::Done(std::mem::take(&mut self.files)),
            Stage::Asking => {
                let path = PATHS.get(self.version).copied().unwrap_or(PATHS[0]);
                Next::Ask { path, body: request(&self.asked) }
            }
        }
    }

    /// The reflection version in use.
    pub fn version(&self) -> &'static str {
        if self.version == 0 { "v1" } else { "v1alpha" }
    }

    /// The server does not support this version. Returns true if there is an older one to try.
    pub fn unknown(&mut self) -> bool {
        let again = self.version == 0 && self.rounds == 0;
        self.version = 1;
        again
    }

    /// Processes a response.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn answer(&mut self, body: &[u8]) -> Result<(), String> {
        self.rounds += 1;
        if self.rounds > ROUNDS {
            return Err(format!("its files import one another more than {ROUNDS} deep"));
        }
        let mut answers = Vec::new();
        let mut messages = Messages::new(SET_BYTES, false);
        let read = messages.feed(body, |message| {
            answers.push(answer(message).ok_or(Wrong::Message)?);
            Ok::<(), Wrong>(())
        });
        read.and_then(|()| messages.finish().map_err(Wrong::Frame)).map_err(|wrong| match wrong {
            Wrong::Frame(e) => e.to_string(),
            Wrong::Message => "an answer is not a message of reflection".to_owned(),
        })?;
        if answers.len() < self.asked.len() {
            return Err("the server has not answered all questions".to_owned());
        }
        let asked = std::mem::take(&mut self.asked);
        let mut wanted = BTreeSet::new();
        let mut services = Vec::new();
        for (question, answer) in asked.iter().zip(answers) {
            if let Some(error) = answer.error {
                return Err(format!("it does not describe {}: {error}", question.name()));
            }
            services.extend(answer.services);
            for file in answer.files {
                self.add(file, &mut wanted)?;
            }
        }
        self.go_on(services, &wanted)
    }

    fn go_on(&mut self, services: Vec<String>, wanted: &BTreeSet<String>) -> Result<(), String> {
        if services.len() > SERVICES {
            return Err(format!("it has more than {SERVICES} services"));
        }
        let services = services.into_iter().filter(|name| !name.starts_with("grpc.reflection."));
        self.asked = services.map(Question::Symbol).collect();
        let built_in = |name: &&String| !name.starts_with("google/protobuf/");
        let missing = wanted.iter().filter(|name| !self.names.contains(*name)).filter(built_in);
        self.asked.extend(missing.cloned().map(Question::File));
        if self.asked.len() + self.names.len() > FILES {
            return Err(format!("it needs more than {FILES} files"));
        }
        if self.asked.is_empty() {
            self.stage = Stage::Done;
        }
        Ok(())
    }

    fn add(&mut self, file: Vec<u8>, wanted: &mut BTreeSet<String>) -> Result<(), String> {
        let (mut name, mut rest) = (String::new(), &file[..]);
        while !rest.is_empty() {
            match wire::field(&mut rest).map_err(|_| "a descriptor is not a message".to_owned())? {
                (1, Value::Bytes(text)) => name = String::from_utf8_lossy(text).into_owned(),
                (3, Value::Bytes(import)) => {
                    wanted.insert(String::from_utf8_lossy(import).into_owned());
                }
                _ => {}
            }
        }
        if !self.names.insert(name) {
            return Ok(());
        }
        self.bytes += file.len();
        if self.bytes > SET_BYTES || self.names.len() > FILES {
            return Err(format!("it describes more than {SET_BYTES} bytes or {FILES} files"));
        }
        self.files.push(file);
        Ok(())
    }
}

impl Question {
    fn name(&self) -> &str {
        match self {
            Self::File(name) | Self::Symbol(name) => name,
            Self::Services => "its services",
        }
    }
}

enum Wrong {
    Frame(FrameError),
    Message,
}

impl From<FrameError> for Wrong {
    fn from(e: FrameError) -> Self {
        Self::Frame(e)
    }
}

/// `ServerReflectionRequest`s in their frames.
fn request(asked: &[Question]) -> Vec<u8> {
    let mut out = Vec::new();
    for question in asked {
        let (number, text) = match question {
            Question::File(name) => (3, name.as_str()),
            Question::Services => (7, "*"),
            Question::Symbol(name) => (4, name.as_str()),
        };
        let begun = frames::begin(&mut out);
        wire::write_bytes(number, text.as_bytes(), &mut out);
        frames::end(begun, &mut out);
    }
    out
}

/// The parts of a `ServerReflectionResponse` that we use.
#[derive(Debug, Default)]
struct Answer {
    files: Vec<Vec<u8>>,
    services: Vec<String>,
    error: Option<String>,
}

fn answer(message: &[u8]) -> Option<Answer> {
    let mut answer = Answer::default();
    for (number, value) in fields(message)? {
        match (number, value) {
            (4, Value::Bytes(all)) => answer.files.extend(bytes_of(all, 1)?.into_iter().map(<[u8]>::to_vec)),
            (6, Value::Bytes(all)) => {
                for service in bytes_of(all, 1)? {
                    let name = bytes_of(service, 1)?.pop();
                    answer.services.extend(name.map(|n| String::from_utf8_lossy(n).into_owned()));
                }
            }
            (7, Value::Bytes(error)) => {
                let text = bytes_of(error, 2)?.pop().map(String::from_utf8_lossy).unwrap_or_default();
                let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
                answer.error = Some(text);
            }
            _ => {}
        }
    }
    Some(answer)
}

fn bytes_of(message: &[u8], wanted: u32) -> Option<Vec<&[u8]>> {
    let all = fields(message)?.into_iter().filter_map(|(number, value)| match value {
        Value::Bytes(bytes) if number == wanted => Some(bytes),
        _ => None,
    });
    Some(all.collect())
}

fn fields(message: &[u8]) -> Option<Vec<(u32, Value<'_>)>> {
    let (mut rest, mut all) = (message, Vec::new());
    while !rest.is_empty() {
        all.push(wire::field(&mut rest).ok()?);
    }
    Some(all)
}
