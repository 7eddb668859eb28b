//! Prints the files of a model: `cargo run -p grpo-hub --example snapshot -- org/name`.

use std::ops::ControlFlow;

use grpo_hub::{FileRequest, Hub, HubError, HubSettings, RepoName};

fn main() -> Result<(), HubError> {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some(repo) = RepoName::model(&name)? else {
        println!("`{name}` is a path");
        return Ok(());
    };
    let request = FileRequest {
        repo: &repo,
        needed: &[&["config.json"], &["model*.safetensors", "*.safetensors"]],
        optional: &["*.json", "*.jinja"],
        newest: false,
    };
    let hub = Hub::new(HubSettings::from_environment()?)?;
    let snapshot = hub.files(&request, &mut |progress| {
        println!("{progress:?}");
        ControlFlow::Continue(())
    })?;
    println!("{snapshot:#?}");
    Ok(())
}
