//! The methods that gRPC steps call: from the plan's files when the plan is read, or from the servers by reflection
//! before the first step runs.

use super::{Failed, Journey};
use crate::schema::{Call, Schema, Server, Source};
use crate::transport::origin::Origin;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use weir_plan::{Kind, Request, Target};

/// Longest wait for the answer to a question of reflection, as for a single call.
const SCHEMA_WAIT: Duration = Duration::from_secs(10);

/// The method of a step.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) call: Arc<Call>,
    /// Its messages in frames, if all calls send the same.
    pub(crate) framed: Option<Box<[u8]>>,
}

/// Stands in a message for values that are not known before the step runs. No message has it by chance.
const STAND_IN: &str = "{{weir value}}";

/// Methods by row; set once, before users run.
pub(crate) type Methods = Vec<OnceLock<Method>>;

/// Looks up the methods in `.proto` files or a descriptor set. Returns each mistake with its place.
pub(crate) fn from_files(journey: &Journey, origins: &[Origin]) -> Vec<(String, String)> {
    let source = match sources(&journey.plan.protos) {
        Ok(Some(source)) => source,
        Ok(None) => return Vec::new(),
        Err(why) => return vec![("protos".to_owned(), why)],
    };
    let mut schema = match Schema::new(source) {
        Ok(schema) => schema,
        // It names the option of a run without a plan.
        Err((place, why)) => {
            let file = place.split_once(' ').map_or("", |(_, file)| file);
            return vec![(format!("protos {file}"), why)];
        }
    };
    let mut wrong = Vec::new();
    for request in journey.calls() {
        let Some(method) = find(journey, origins, request, &mut schema) else { continue };
        let path = journey.plan.step(request.id).map_or("", |step| &*step.path);
        if let Err((key, why)) = method.and_then(|call| set(journey, request, call)) {
            wrong.push((format!("{path}.{key}"), journey.masks.apply(&why)));
        }
    }
    wrong
}

/// Asks the servers about the methods that are not known yet.
pub(crate) fn ask(journey: &Journey, origins: &[Origin], is_ended: impl Fn() -> bool) -> Result<(), Failed> {
    for request in journey.calls() {
        if journey.method(usize::from(request.id.0)).is_some() {
            continue;
        }
        if is_ended() {
            return Err(Failed("interrupted before the load began".to_owned()));
        }
        let told = |why: String| {
            let name = journey.plan.step(request.id).map_or("", |step| &*step.name);
            let why = journey.masks.apply(&why); // servers may repeat what they were sent
            Failed(format!("step `{name}`: {why}; `protos:` in the plan names files instead"))
        };
        let mut schema = Schema::new(Source::Reflection).map_err(|(_, why)| told(why))?;
        let Some(found) = find(journey, origins, request, &mut schema) else { continue };
        found
            .and_then(|call| set(journey, request, call))
            .map_err(|(key, why)| told(format!("{key}: {why}")))?;
    }
    Ok(())
}

/// A set of descriptors, or files in the language of Protocol Buffers.
fn sources(files: &[PathBuf]) -> Result<Option<Source>, String> {
    let is_proto = |file: &PathBuf| file.extension().is_some_and(|end| end == "proto");
    match files {
        [] => Ok(None),
        all if all.iter().all(is_proto) => Ok(Some(Source::Files(all.to_vec(), Vec::new()))),
        [set] => Ok(Some(Source::Set(set.clone()))),
        _ => Err("expected .proto files, or one descriptor set (protoc --include_imports --descriptor_set_out=FILE)"
            .to_owned()),
    }
}

/// The method of a request. The error is the key of the step, and the mistake.
fn find(
    journey: &Journey,
    origins: &[Origin],
    request: &Request,
    schema: &mut Schema,
) -> Option<Result<Call, (&'static str, String)>> {
    let Target::At { origin: at, path } = &request.target else { return None };
    let path = String::from_utf8_lossy(path.fixed()?).into_owned();
    let (origin, authority) = (origins.get(*at)?, journey.authorities.get(*at)?);
    // A server may want credentials for reflection too. Those that a step keeps are not known yet.
    let text = |value: &weir_plan::Template| String::from_utf8(value.fixed()?.to_vec()).ok();
    let fields: Vec<(String, String)> =
        request.headers.iter().filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect();
    let scheme = if origin.tls.is_some() { "https" } else { "http" };
    let server = Server { origin, scheme, authority, fields: &fields, timeout: SCHEMA_WAIT };
    Some(schema.call(&path, &server).map_err(|why| ("grpc", why)))
}

fn set(journey: &Journey, request: &Request, call: Call) -> Result<(), (&'static str, String)> {
    let mut framed = None;
    if let Some(body) = &request.body {
        match body.fixed() {
            Some(message) => {
                let mut frames = Vec::new();
                call.frame(message, &mut frames).map_err(|why| ("message", why))?;
                framed = Some(frames.into());
            }
            None => call.fits(&body.json_with(STAND_IN), STAND_IN).map_err(|why| ("message", why))?,
        }
    }
    if let Some(place) = journey.methods.get(usize::from(request.id.0)) {
        let _ = place.set(Method { call: Arc::new(call), framed }); // each is looked up once
    }
    Ok(())
}

impl Journey {
    /// Every gRPC step.
    fn calls(&self) -> impl Iterator<Item = &Request> {
        self.programs().flat_map(super::program::Program::requests).filter(|r| r.kind == Kind::Grpc)
    }

    /// Steps whose method is not known before the servers are asked.
    pub(crate) fn unknown_calls(&self) -> u64 {
        let is_unknown = |request: &&Request| self.method(usize::from(request.id.0)).is_none();
        self.calls().filter(is_unknown).count() as u64
    }

    /// The method of a step, if it makes calls.
    pub(crate) fn method(&self, row: usize) -> Option<&Method> {
        self.methods.get(row)?.get()
    }
}
