//! Renders chat templates from the standard input, to compare them with another engine.
//!
//! Each line is a JSON object with a `template` and its `variables`. Each line of the output is a
//! JSON object with the `text`, or with the `error`.

use grpo_jinja::Template;
use serde_json::{Map, Value, json};
use std::io::{BufRead, Write};

#[derive(Debug)]
struct Case {
    template: String,
    variables: Map<String, Value>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let case = case(&line?)?;
        let rendered = Template::parse(&case.template)
            .and_then(|template| template.render(case.variables))
            .map_or_else(|error| json!({"error": error.to_string()}), |text| json!({"text": text}));
        writeln!(out, "{rendered}")?;
    }
    Ok(())
}

/// Reads a line such as `{"template": "{{ a }}", "variables": {"a": 1}}`.
fn case(line: &str) -> Result<Case, Box<dyn std::error::Error>> {
    let mut line: Map<String, Value> = serde_json::from_str(line)?;
    let template = line.get("template").and_then(Value::as_str).ok_or("`template` is missing")?;
    let template = template.to_owned();
    let variables = match line.remove("variables") {
        Some(Value::Object(variables)) => variables,
        _ => Map::new(),
    };
    Ok(Case { template, variables })
}
