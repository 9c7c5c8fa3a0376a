//! The calls about a shadow: reads what to judge, starts and ends it, reports, promotes.

#![allow(clippy::result_large_err, reason = "a refusal is an answer, made once a call and never in a loop")]

use crate::answer;
use crate::config_answer::{Outcome, document, redacted_for, refuse, with_trail};
use crate::config_request::{ConfigRequest, by, flag, terms};
use crate::documents::Checked;
use hyper::StatusCode;
use serde_json::{Value, json};
use weir_gateway::Gateway;
use weir_gateway::config::Diagnostics;
use weir_gateway::config::schema::Role;
use weir_gateway::config::units::{Duration, Percent};
use weir_gateway::history::Origin;
use weir_gateway::shadow::{LONGEST, NoShadow, NotPromoted, ShadowRequest};

/// Most files of a candidate.
const FILES: usize = 1000;

/// The sample, the time and the number of judged requests if the request names none.
const SAMPLE: f64 = 0.1;
const TIME: std::time::Duration = std::time::Duration::from_secs(600);
const JUDGED: u64 = 100;

/// `POST /api/v1/shadow`
pub(crate) fn start(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    flag(&asked.uri, asked.call)?;
    let request = read(asked)
        .map_err(|wrong| answer::problem(StatusCode::BAD_REQUEST, &format!("the body: {wrong}")))?;
    match gateway.start_shadow(request) {
        Ok((diagnostics, report)) => {
            let found = redacted(&diagnostics, asked);
            let checked = json!(Checked::of(&found));
            let mut told = json!(report);
            told["warnings"] = checked["text"].clone();
            Ok(answer::json(StatusCode::CREATED, &told))
        }
        Err(NoShadow::Busy(holder, since, left)) => {
            let detail = format!("`{holder}` runs a shadow since {since}, for {left} s more at most");
            let members = json!({ "holder": holder, "since": since });
            Err(answer::problem_with(StatusCode::CONFLICT, &detail, members))
        }
        Err(NoShadow::Draining) => {
            Err(answer::problem(StatusCode::CONFLICT, "the gateway is draining and judges no other config"))
        }
        Err(NoShadow::Refused(mistakes)) => {
            let detail = "the candidate has mistakes";
            let found = redacted(&mistakes, asked);
            Err(answer::problem_with(StatusCode::UNPROCESSABLE_ENTITY, detail, json!(Checked::of(&found))))
        }
        Err(NoShadow::Reloaded) => Err(answer::problem(
            StatusCode::CONFLICT,
            "another config began to run while the candidate was compiled: try again",
        )),
        Err(NoShadow::System(error)) => {
            let detail = format!("the judge could not be started: {error}");
            Err(answer::problem(StatusCode::INTERNAL_SERVER_ERROR, &detail))
        }
    }
}

/// `GET /api/v1/shadow` and `GET /api/v1/shadow/{id}`, which keeps it running.
pub(crate) fn report(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    flag(&asked.uri, asked.call)?;
    match gateway.shadow(asked.parts.first().map(String::as_str)) {
        Some(report) => Ok(answer::json(StatusCode::OK, &json!(report))),
        None => Err(missing()),
    }
}

/// `POST /api/v1/shadow/{id}:end`
pub(crate) fn end(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    flag(&asked.uri, asked.call)?;
    let why = format!("{} ended it", asked.who.name);
    match gateway.end_shadow(id(asked), &why) {
        Some(report) => Ok(answer::json(StatusCode::OK, &json!(report))),
        None => Err(missing()),
    }
}

/// `POST /api/v1/shadow/{id}:promote`
pub(crate) fn promote(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    flag(&asked.uri, asked.call)?;
    let terms = terms(&asked.uri)?;
    let before = gateway.texts().hash;
    match gateway.promote_shadow(id(asked), by(asked, Origin::Api), terms) {
        Ok(changed) => {
            let told = document(gateway, &changed, &asked.who, false);
            Ok(with_trail(answer::json(StatusCode::OK, &told), before, &changed))
        }
        Err(NotPromoted::Missing) => Err(missing()),
        Err(NotPromoted::NotChanged(not)) => Err(refuse(&not, &asked.who, gateway)),
        Err(other) => Err(answer::problem(StatusCode::CONFLICT, &other.to_string())),
    }
}

fn id(asked: &ConfigRequest) -> &str {
    asked.parts.first().map_or("", String::as_str)
}

fn missing() -> answer::Answer {
    answer::problem(StatusCode::NOT_FOUND, "there is no such shadow; `weir shadow` starts one")
}

/// Mistakes as this caller may see them. Only `admin` sees values from variables and files.
fn redacted(diagnostics: &Diagnostics, asked: &ConfigRequest) -> Diagnostics {
    redacted_for(diagnostics, &asked.who, None)
}

/// Reads what to judge.
fn read(asked: &ConfigRequest) -> Result<ShadowRequest, String> {
    let body: Value = serde_json::from_str(&asked.body).map_err(|e| format!("it is not JSON: {e}"))?;
    let members = body.as_object().ok_or("expected an object")?;
    let known = ["files", "for", "max_change", "min_judged", "sample"];
    if let Some(other) = members.keys().find(|key| !known.contains(&&***key)) {
        return Err(format!("`{other}` is unknown; expected {}", known.join(", ")));
    }
    let files = members.get("files").and_then(Value::as_array).ok_or("`files` is missing: a list")?;
    if files.len() > FILES {
        return Err(format!("`files` has more than {FILES}"));
    }
    let file = |file: &Value| {
        let text = |key: &str| file.get(key).and_then(Value::as_str).map(str::to_owned);
        text("name").zip(text("text")).ok_or("a file has `name` and `text`")
    };
    let share = |key: &str| -> Result<Option<f64>, String> {
        let Some(value) = members.get(key) else { return Ok(None) };
        let percent = value.as_str().and_then(|text| text.parse::<Percent>().ok()).map(Percent::ratio);
        let percent = percent.filter(|ratio| (0.0..=1.0).contains(ratio));
        percent.map(Some).ok_or_else(|| format!("`{key}` is a share from 0% to 100%, such as \"10%\""))
    };
    let sample = share("sample")?.unwrap_or(SAMPLE);
    if sample == 0.0 {
        return Err("`sample` is 0%: nothing would be judged".to_owned());
    }
    let time = match members.get("for") {
        None => TIME,
        Some(value) => {
            let time = value.as_str().and_then(|text| text.parse::<Duration>().ok()).map(Duration::get);
            let fits = |time: &std::time::Duration| !time.is_zero() && *time <= LONGEST;
            time.filter(fits).ok_or("`for` is a time of at most 1d, such as \"10m\"")?
        }
    };
    let min_judged = match members.get("min_judged") {
        None => JUDGED,
        Some(value) => value.as_u64().filter(|n| *n > 0).ok_or("`min_judged` is a number from 1")?,
    };
    Ok(ShadowRequest {
        files: files.iter().map(file).collect::<Result<_, _>>()?,
        sample,
        time,
        max_change: share("max_change")?,
        min_judged,
        holder: asked.who.name.clone(),
        unrestricted: asked.who.role >= Role::Admin,
    })
}
