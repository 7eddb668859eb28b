use grpo_data::{ChatOptions, ChatTemplate, DataError, Message};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Creates a folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn load(files: &[(&str, &str)]) -> Result<Option<ChatTemplate>, String> {
    let folder = folder(files);
    let prefix = format!("{}{}", folder.path().display(), std::path::MAIN_SEPARATOR);
    ChatTemplate::from_folder(folder.path()).map_err(|error| error.to_string().replace(&prefix, ""))
}

fn template(source: &str) -> ChatTemplate {
    load(&[("chat_template.jinja", source)]).unwrap().unwrap()
}

fn render(source: &str) -> Result<String, DataError> {
    template(source).render(&[], &ChatOptions::default())
}

/// Returns the line and the reason of a rendering error.
#[track_caller]
fn failure(source: &str) -> (u64, String) {
    match render(source) {
        Err(DataError::TemplateFailed { line, reason, .. }) => (line, reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn texts_are_those_of_transformers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chat.json");
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 17);
    for case in cases {
        let name = &case["name"];
        let template = load(&[
            ("chat_template.jinja", case["template"].as_str().unwrap()),
            ("tokenizer_config.json", &case["tokens"].to_string()),
        ]);
        let messages: Vec<Message> = serde_json::from_value(case["messages"].clone()).unwrap();
        let options = ChatOptions {
            add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
            enable_thinking: case["enable_thinking"].as_bool(),
            tools: Vec::new(),
        };
        match (template.unwrap().unwrap().render(&messages, &options), &case["expected"]) {
            (Ok(found), Value::String(expected)) => assert_eq!(&found, expected, "{name}"),
            (Err(DataError::TemplateFailed { reason, .. }), Value::Null) => {
                assert_eq!(reason, case["error"].as_str().unwrap(), "{name}");
            }
            (found, _) => panic!("{name}: {found:?}"),
        }
    }
}

#[test]
fn the_file_of_its_own_comes_first_and_a_list_has_a_default() {
    let text = |files: &[(&str, &str)]| {
        load(files).unwrap().unwrap().render(&[], &ChatOptions::default()).unwrap()
    };
    let config = ("tokenizer_config.json", r#"{"chat_template": "config"}"#);
    assert_eq!(text(&[("chat_template.jinja", "file"), config]), "file");
    assert_eq!(text(&[config]), "config");
    let list = json!({"chat_template": [
        {"name": "tool_use", "template": "tools"}, {"name": "default", "template": "usual"}
    ]});
    assert_eq!(text(&[("tokenizer_config.json", &list.to_string())]), "usual");
    assert!(load(&[]).unwrap().is_none());
    assert!(load(&[("tokenizer_config.json", r#"{"chat_template": null}"#)]).unwrap().is_none());
}

#[test]
fn special_tokens_are_strings_or_objects() {
    let config = json!({
        "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null,
        "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}",
    });
    let template = load(&[("tokenizer_config.json", &config.to_string())]).unwrap().unwrap();
    assert_eq!(template.render(&[], &ChatOptions::default()).unwrap(), "<s></s>False");
}

#[test]
fn wrong_files_are_named_with_their_fault() {
    let config = |text: &str| load(&[("tokenizer_config.json", text)]).unwrap_err();
    assert_eq!(
        load(&[("chat_template.jinja", "a\nb{% if x %}\nc")]).unwrap_err(),
        "line 3 of the chat template in `chat_template.jinja` does not parse: Unexpected end of template. Jinja was looking for the following tags: 'elif' or 'else' or 'endif'.; correct the template"
    );
    let error = config(r#"{"chat_template": "\n{{ 1 +"}"#);
    assert!(error.starts_with("line 2 of the chat template in `tokenizer_config.json`"), "{error}");
    assert_eq!(
        config(r#"{"chat_template": [{"name": "tools", "template": "x"}]}"#),
        "`chat_template` in `tokenizer_config.json` is a list; expected a string, or a list of {name, template} including one named `default`; correct or remove it"
    );
    assert!(config(r#"{"chat_template": 3}"#).contains("`chat_template` in"));
    assert_eq!(
        config(r#"{"eos_token": 3, "chat_template": ""}"#),
        "`eos_token` in `tokenizer_config.json` is the value 3; expected a string, or an object with a string `content`; correct or remove it"
    );
    assert!(config("[]").starts_with("`tokenizer_config.json` is not a JSON object: found a list"));
    assert!(
        config("{")
            .starts_with("`tokenizer_config.json` is not a JSON object: unexpected end of input")
    );
}

#[test]
fn reports_the_line_of_a_failing_template() {
    let source = "a\n{{ raise_exception('no tools') }}";
    assert_eq!(failure(source), (2, "no tools".to_owned()));
    let error = render(source).unwrap_err().to_string();
    assert!(error.contains("cannot render the messages: no tools; correct"), "{error}");
    assert_eq!(failure("{{ messages.nothing.more }}").0, 1);
    assert!(failure("{{ 'x'.frobnicate() }}").1.contains("frobnicate"));
    assert!(failure("\n\n{{ strftime_now('%!') }}").1.contains("does not support the format `%!`"));
    assert!(failure("{{ 1 | tojson(colour=1) }}").1.contains("colour"));
}

#[test]
fn the_date_is_todays() {
    let year = render("{{ strftime_now('%Y') }}").unwrap();
    assert!(year.len() == 4 && year.parse::<u32>().unwrap() >= 2024, "{year}");
}

#[test]
fn hostile_templates_end_in_an_error() {
    let hostile = [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ range(1000000000) | list }}",
        "{{ 'a' * 10000000000 }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ [[1]] | tojson(indent=9999999999) }}",
        "{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns }}",
    ];
    for source in hostile {
        let start = Instant::now();
        let (_, reason) = failure(source);
        assert!(start.elapsed() < Duration::from_secs(60), "{source}: {reason}");
    }
    assert_eq!(failure(hostile[0]).1, "the template evaluates more than 2000000 expressions");
    let contains_itself = "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me.x.y }}";
    assert!(failure(contains_itself).1.contains("has no attribute 'x'"));
    let nested = "{% if true %}".repeat(5000) + &"{% endif %}".repeat(5000);
    assert!(load(&[("chat_template.jinja", &nested)]).is_err());
    let nested = format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000));
    assert!(load(&[("chat_template.jinja", &nested)]).is_err());
}

proptest! {
    #[test]
    fn any_template_renders_or_fails(source in r#"(\{\{|\}\}|\{%-?|%\}|\{#|#\}| |\n|if|for|x|in|messages|generation|endgeneration|set|=|end|'|\(|\)|\||\[|:|-|1|tojson|é){0,30}"#) {
        if let Ok(Some(template)) = load(&[("chat_template.jinja", &source)]) {
            let _ = template.render(&[Message::new("user", "é")], &ChatOptions::default());
        }
    }

    #[test]
    fn what_is_said_reaches_the_text_as_it_is(content: String) {
        let template = template("{% for m in messages %}{{ m.content }}{% endfor %}");
        let messages = [Message::new("user", content.clone())];
        prop_assert_eq!(template.render(&messages, &ChatOptions::default()).unwrap(), content);
    }
}
