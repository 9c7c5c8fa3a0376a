//! The journey of bench/journey.py for goose: log in, list items, get one. Each step needs a value of the one before.

use goose::prelude::*;
use serde_json::Value;

async fn journey(user: &mut GooseUser) -> TransactionResult {
    let login = user.post("/login", r#"{"user":"a","password":"b"}"#).await?;
    let token = text(&login.response?.json::<Value>().await?, "/token");
    let path = format!("/items?token={token}");
    let items = user.get(&path).await?;
    let id = text(&items.response?.json::<Value>().await?, "/items/0/id");
    let path = format!("/items/{id}?token={token}");
    let item = user.get_named(&path, "item").await?.response?;
    if item.status() != 200 {
        panic!("{}", item.status());
    }
    item.text().await?;
    Ok(())
}

fn text(json: &Value, path: &str) -> String {
    json.pointer(path).and_then(Value::as_str).expect("the answer has the value").to_owned()
}

#[tokio::main]
async fn main() -> Result<(), GooseError> {
    let journey = scenario!("journey").register_transaction(transaction!(journey));
    GooseAttack::initialize()?.register_scenario(journey).execute().await?;
    Ok(())
}
