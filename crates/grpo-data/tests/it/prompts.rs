use flate2::{Compression, write::GzEncoder};
use grpo_data::{
    CompletionSource, FileOrigin, Message, PromptReader, PromptRecord, PromptSource, Records,
    nested_field,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

pub(crate) fn results(name: &str, bytes: &[u8]) -> Vec<Result<PromptRecord, String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let short =
        |error: grpo_data::DataError| error.to_string().replace(path.to_str().unwrap(), name);
    match PromptReader::open(&path) {
        Ok(reader) => reader.map(|record| record.map_err(short)).collect(),
        Err(error) => vec![Err(short(error))],
    }
}

fn read(text: &str) -> Vec<PromptRecord> {
    results("p.jsonl", text.as_bytes()).into_iter().map(Result::unwrap).collect()
}

#[track_caller]
fn error(text: &str) -> String {
    results("p.jsonl", text.as_bytes()).pop().unwrap().unwrap_err()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn message(role: &str, content: &str) -> Message {
    Message::new(role, content)
}

#[test]
fn every_key_gives_its_prompt_and_completion() {
    use CompletionSource as C;
    use PromptSource as P;
    let check = |line: &str, prompt: PromptSource, completion: Option<CompletionSource>| {
        let is_text = line.starts_with(r#"{"text""#);
        let fields = serde_json::Map::new();
        let (shape, tools, has_answer) = (None, Vec::new(), true);
        let expect =
            PromptRecord { line: 1, prompt, is_text, completion, shape, tools, has_answer, fields };
        assert_eq!(read(line), [expect], "{line}");
    };
    let (user, answer) = (message("user", "q"), message("assistant", "a"));
    let text = |text: &str| Some(C::Text(text.into()));
    check(r#"{"prompt": "é"}"#, P::Text("é".into()), None);
    check(r#"{"prompt": ""}"#, P::Text("".into()), None);
    check(r#"{"prompt": [0, 4294967295]}"#, P::Ids(vec![0, u32::MAX]), None);
    check(r#"{"prompt_ids": []}"#, P::Ids(vec![]), None);
    check(
        r#"{"prompt_ids": [1], "completion_ids": [2, 3]}"#,
        P::Ids(vec![1]),
        Some(C::Ids(vec![2, 3])),
    );
    check(r#"{"prompt": "q", "completion": [2]}"#, P::Text("q".into()), Some(C::Ids(vec![2])));
    check(r#"{"prompt": "q", "completion": "a"}"#, P::Text("q".into()), text("a"));
    check(r#"{"prompt": "q", "completion": null}"#, P::Text("q".into()), None);
    check(r#"{"text": "whole", "prompt": null}"#, P::Text("".into()), text("whole"));
    let q = r#"{"role": "user", "content": "q"}"#;
    let a = r#"{"content": "a", "role": "assistant", "tool_calls": null}"#;
    check(&format!(r#"{{"prompt": [{q}]}}"#), P::Messages(vec![user.clone()]), None);
    check(
        &format!(r#"{{"prompt": [{q}], "completion": [{a}]}}"#),
        P::Messages(vec![user.clone()]),
        text("a"),
    );
    check(&format!(r#"{{"messages": [{q}, {a}]}}"#), P::Messages(vec![user.clone()]), text("a"));
    check(&format!(r#"{{"messages": [{q}]}}"#), P::Messages(vec![user.clone()]), None);
    // The beginning of an answer in the prompt remains part of the prompt.
    check(
        &format!(r#"{{"prompt": [{q}, {a}]}}"#),
        P::Messages(vec![user.clone(), answer.clone()]),
        None,
    );
    check(
        &format!(r#"{{"messages": [{q}, {a}], "completion": "b"}}"#),
        P::Messages(vec![user, answer]),
        text("b"),
    );
}

#[test]
fn other_keys_are_kept_as_they_are_and_in_their_order() {
    let records = read(r#"{"z": [1, {"b": null}], "prompt": "q", "answer": 4, "a": 0.5}"#);
    let fields: Vec<_> = records[0].fields.iter().collect();
    assert_eq!(
        fields,
        [
            (&"z".to_owned(), &json!([1, {"b": null}])),
            (&"answer".to_owned(), &json!(4)),
            (&"a".to_owned(), &json!(0.5)),
        ]
    );
}

#[test]
fn marks_line_ends_and_empty_lines_are_fine() {
    let check = |text: &str, expect: &[(u64, &str)]| {
        let records = read(text);
        let found: Vec<_> = records
            .iter()
            .map(|record| match &record.prompt {
                PromptSource::Text(text) => (record.line, text.as_str()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, expect);
    };
    check("", &[]);
    check("\u{feff}\n \t\r\n", &[]);
    check("\u{feff}{\"prompt\": \"a\"}\r\n\r\n {\"prompt\": \"b\"} ", &[(1, "a"), (3, "b")]);
    check("\n\n{\"prompt\": \"\\r\\n\"}\n", &[(3, "\r\n")]);
}

#[test]
fn the_name_of_a_file_tells_its_format() {
    let text = r#"{"prompt": "q"}"#;
    let check = |name: &str, bytes: &[u8]| {
        let found = results(name, bytes);
        assert!(matches!(found.as_slice(), [Ok(_)]), "{name}: {found:?}");
    };
    check("a.jsonl", text.as_bytes());
    check("a.JSON", text.as_bytes());
    check("a.jsonl.gz", &gzip(text));
    check("a.b.json.GZ", &gzip(text));
    let error = |name: &str| PromptReader::open(Path::new(name)).err().unwrap().to_string();
    let expected =
        "expected a name ending in `.jsonl`, `.jsonl.gz`, `.json`, `.json.gz` or `.parquet`";
    for name in ["a.sdf", "a", "a.gz", "a.jsonl.bak"] {
        let unknown = format!("cannot determine the format of `{name}` from its name; {expected}");
        assert_eq!(error(name), unknown);
    }
    // What is another format is called by its name, with a command that converts it.
    let table = |separators: &str| {
        format!(
            "python3 -c 'import csv, json, sys; sys.stdin.reconfigure(encoding=\"utf-8-sig\", newline=\"\"); rows = list(sys.stdin); separator = max(\"{separators}\", key=\"\".join(rows[:1]).count); numbers = (\"likes\", \"retweets\", \"followers\", \"seconds\"); [print(json.dumps({{key: json.loads(cell) if key.endswith(numbers) else cell for key, cell in row.items() if key and cell}})) for row in csv.DictReader(rows, delimiter=separator)]'"
        )
    };
    let lines = |key: &str, files: &str| {
        let program = r#"sub("\\s+$"; "") | select(. != "")"#;
        format!("; `jq -Rc '{program} | {{{key}: .}}' {files}` makes each line a {key}")
    };
    for (name, is, remedy) in [
        (
            "a.csv",
            "is a table",
            format!("; convert it with `{} < a.csv > a.jsonl`", table(r",;\t")),
        ),
        (
            "my data/a.b.TSV.gz",
            "is a table",
            format!(
                "; convert it with `gzip -dc < 'my data/a.b.TSV.gz' | {} > 'my data/a.b.jsonl'`",
                table(r"\t")
            ),
        ),
        ("a.txt", "is plain text", lines("prompt", "< a.txt > a.jsonl")),
        ("a.smi", "is a list of molecules", lines("prompt", "< a.smi > a.jsonl")),
        ("a.xlsx", "is a spreadsheet", String::new()),
        ("a.zip", "is an archive", String::new()),
    ] {
        let said = format!("`{name}` {is}, which cannot be read here; {expected}{remedy}");
        assert_eq!(error(name), said);
    }
    let texts = PromptReader::open_texts(Path::new("a.txt")).err().unwrap().to_string();
    assert!(texts.ends_with(&lines("text", "< a.txt > a.jsonl")), "{texts}");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let a_file = expected.replace("expected a name", "expected a file with a name");
    assert_eq!(error(folder), format!("`{folder}` is a folder; {a_file}"));
    // Where molecules are read, too.
    let either = |name: &str| {
        let (origin, _) = FileOrigin::new(Path::new(name));
        origin.unknown_format("`.smi`, `.csv` or `.jsonl`", Records::Lines("text")).to_string()
    };
    let renamed = "; if each line is a SMILES, rename it to end in `.smi`";
    assert!(either("a.smiles").ends_with(renamed), "{}", either("a.smiles"));
    assert!(either("a.txt").ends_with(&format!("{renamed}{}", lines("text", "< a.txt > a.jsonl"))));
    assert!(
        either("a.tsv")
            .ends_with("; rename it to end in `.csv`, which may have tabs between its cells")
    );
    assert!(error("parquet").starts_with("cannot determine the format"));
    assert!(error("a.parquet.gz").starts_with("cannot determine the format"));
    assert_eq!(error("none.jsonl"), "`none.jsonl` does not exist; check the path");
    assert_eq!(error("none.parquet"), "`none.parquet` does not exist; check the path");
}

/// Checks that an invalid `line` between two valid ones ends the iteration with the error `expect`.
#[track_caller]
fn check_fault(line: &str, expect: &str) {
    let text = format!("{{\"prompt\": \"q\"}}\n{line}\n{{\"prompt\": \"q\"}}\n");
    let found = results("p.jsonl", text.as_bytes());
    assert_eq!(found.len(), 2, "{line}");
    assert_eq!(found[1].clone().unwrap_err(), format!("p.jsonl:2: {expect}"));
}

#[test]
fn wrong_lines_are_named_with_their_fault() {
    let check = check_fault;
    let hint = "write one object per line, such as {\"prompt\": \"2 + 2 =\"}";
    check(
        "[1]",
        &format!("the line is not a JSON object: found a list; expected an object; {hint}"),
    );
    let one = "write one object per line, which `jq -c";
    for array in ["[", "[{", "[ {\"prompt\": \"a\"}]", "[{\"prompt\": \"a\"}, {}"] {
        check(array, &format!("the line starts a JSON array; {one} '.[]' OLD > NEW` does"));
    }
    check("{", &format!("the object is spread over several lines; {one} '.' OLD > NEW` does"));
    check(
        "{\"prompt\": \"q\"",
        &format!("the line is not a JSON object: unexpected end of input at column 14; {hint}"),
    );
    check(
        "{\"prompt\": \"q\"} {}",
        &["the line is not a JSON object: there is more text after the end of the value at column 17; ", hint].concat(),
    );
    check(
        r#"{"query": "q", "prompt": null}"#,
        "the prompt is missing; use one of the keys `prompt`, `messages`, `prompt_ids`, `text` (found `query`); name its column with data.columns = { prompt = \"query\" } or data.template, or rename it with `jq -c '.prompt = .query | del(.query)' OLD > NEW`",
    );
    check(
        "{}",
        "the prompt is missing; use one of the keys `prompt`, `messages`, `prompt_ids`, `text` (found (none))",
    );
    check(
        r#"{"messages": [], "prompt": ""}"#,
        "both `prompt` and `messages` are present; say which is the prompt with data.columns = { prompt = \"messages\" }, or keep one of them",
    );
    check(
        r#"{"text": "", "prompt": ""}"#,
        "both `prompt` and `text` are present; say which is the prompt with data.columns = { prompt = \"prompt\" }, or keep one of them",
    );
    check(
        r#"{"text": "", "completion": ""}"#,
        "both `completion` and `text` are present; keep one of them",
    );
    check(
        r#"{"text": "", "completion_ids": []}"#,
        "both `completion_ids` and `text` are present; keep one of them",
    );
    check(r#"{"prompt": "", "prompt": ""}"#, "duplicate key `prompt`; keep one of them");
    check(r#"{"prompt": "", "x": 1, "x": 1}"#, "duplicate key `x`; keep one of them");
}

#[test]
fn wrong_values_are_named_with_their_key() {
    let check = check_fault;
    let prompt = "expected text, a list of token ids, or a list of messages {role, content} (an empty prompt is \"\" or `prompt_ids`: []); other values need data.template";
    check(r#"{"prompt": 3}"#, &format!("`prompt` is the value 3; {prompt}"));
    check(r#"{"prompt": []}"#, &format!("`prompt` is an empty list; {prompt}"));
    check(r#"{"prompt": {}}"#, &format!("`prompt` is an object; {prompt}"));
    let completion = "expected text, a list of token ids, or a list with one assistant message (an empty completion is \"\" or `completion_ids`: [])";
    check(
        r#"{"prompt": "", "completion": []}"#,
        &format!("`completion` is an empty list; {completion}"),
    );
    check(r#"{"text": true}"#, "`text` is the value true; expected a text");
    let id = "expected a token id, which is a whole number from 0 to 4294967295";
    check(r#"{"prompt": [1, -2]}"#, &format!("`prompt[1]` is the value -2; {id}"));
    check(
        r#"{"prompt_ids": [4294967296]}"#,
        &format!("`prompt_ids[0]` is the value 4294967296; {id}"),
    );
    check(r#"{"prompt_ids": [1.0]}"#, &format!("`prompt_ids[0]` is the value 1.0; {id}"));
    check(
        r#"{"prompt": "", "completion_ids": [null]}"#,
        &format!("`completion_ids[0]` is null; {id}"),
    );
    check(
        r#"{"prompt_ids": "1 2"}"#,
        "`prompt_ids` is the string \"1 2\"; expected a list of token ids",
    );
}

#[test]
fn wrong_messages_are_named_with_their_place() {
    let check = check_fault;
    let messages = "expected a list of messages {role, content}";
    check(r#"{"messages": "q"}"#, &format!("`messages` is the string \"q\"; {messages}"));
    check(r#"{"messages": []}"#, &format!("`messages` is an empty list; {messages}"));
    check(
        r#"{"messages": [{"role": "user", "content": "q"}, 3]}"#,
        "`messages[1]` is the value 3; expected a message {role, content}",
    );
    check(
        r#"{"messages": [{"role": "user", "content": [{"type": "text"}]}]}"#,
        "`messages[0].content[0]` is an object; expected a part {\"type\": \"text\", \"text\": …}, because only text is supported",
    );
    check(r#"{"prompt": [{"content": "q"}]}"#, "`prompt[0].role` is null; expected a text");
    check(
        r#"{"messages": [{"role": "assistant", "content": "a"}]}"#,
        "`messages` has only an assistant message; expected at least one message before it as the prompt",
    );
    check(
        r#"{"prompt": "", "completion": [{"role": "user", "content": "q"}]}"#,
        "`completion` contains messages with the roles `user`; expected one message with the role `assistant`",
    );
}

#[test]
fn damaged_files_are_named_with_the_line() {
    let found = results("p.jsonl", b"{\"prompt\": \"q\"}\n{\"prompt\": \"\xff\"}\n");
    assert_eq!(
        found[1].clone().unwrap_err(),
        "line 2 of `p.jsonl` is not UTF-8 text; save the file as UTF-8 (a compressed file's name must end in `.gz`)"
    );
    let text: String = (0..5000).map(|i| format!("{{\"prompt\": \"{i}\"}}\n")).collect();
    let whole = gzip(&text);
    let cut = results("p.jsonl.gz", &whole[..whole.len() - 10]).pop().unwrap().unwrap_err();
    assert!(cut.starts_with("`p.jsonl.gz` cannot be decompressed after line "), "{cut}");
    assert!(!cut.contains("line 0"), "{cut}");
    let plain = results("p.jsonl.gz", text.as_bytes()).pop().unwrap().unwrap_err();
    assert!(
        plain.starts_with("`p.jsonl.gz` cannot be decompressed after line 0: invalid gzip"),
        "{plain}"
    );
    let deep = "[".repeat(100_000);
    let deep = error(&format!("{{\"prompt\": \"q\", \"x\": {deep}"));
    assert!(deep.contains("it is nested too deeply"), "{deep}");
}

#[test]
fn a_huge_line_is_read_and_a_boundless_one_refused() {
    let huge = "é".repeat(5_000_000);
    let records = read(&format!("{{\"prompt\": \"{huge}\"}}"));
    assert_eq!(records[0].prompt, PromptSource::Text(huge));
    let blanks = vec![b' '; 33 << 20];
    assert_eq!(
        results("p.jsonl", &blanks),
        [Err(
            "p.jsonl:1: the record is longer than 32 MiB; write one record per line, and close every quote".into()
        )]
    );
}

proptest! {
    #[test]
    fn random_bytes_give_records_or_one_error(bytes: Vec<u8>, gz: bool) {
        let found = results(if gz { "p.jsonl.gz" } else { "p.jsonl" }, &bytes);
        let errors = found.iter().filter(|result| result.is_err()).count();
        prop_assert!(errors == 0 || (errors == 1 && found.last().unwrap().is_err()));
    }

    #[test]
    fn damaged_lines_never_panic(at in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), gz: bool) {
        let text = "{\"prompt\": [{\"role\": \"user\", \"content\": \"é\"}], \"completion_ids\": [1, 2]}\r\n\
            {\"messages\": [{\"role\": \"user\", \"content\": \"\"}], \"x\": {\"y\": [1e9, null]}}\n";
        let mut bytes = if gz { gzip(text) } else { text.into() };
        for (at, byte) in at {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        results(if gz { "p.jsonl.gz" } else { "p.jsonl" }, &bytes);
    }

    #[test]
    fn fields_and_texts_survive(prompt: String, field: String, number: i64) {
        let line = json!({"prompt": prompt, "x": [field, number]});
        let records = read(&line.to_string());
        prop_assert_eq!(&records[0].prompt, &PromptSource::Text(prompt));
        prop_assert_eq!(Value::Object(records[0].fields.clone()), json!({"x": line["x"]}));
    }
}

#[test]
fn contents_of_text_parts_are_joined() {
    for content in [
        r#"[{"type": "text", "text": "hi "}, {"type": "text", "text": "you"}]"#,
        r#"["hi ", {"text": "you"}]"#,
        r#""hi you""#,
    ] {
        let line = format!(r#"{{"messages": [{{"role": "user", "content": {content}}}]}}"#);
        let message = Message::new("user", "hi you");
        assert_eq!(read(&line)[0].prompt, PromptSource::Messages(vec![message]), "{content}");
    }
    check_fault(
        r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "url": "b"}]}]}"#,
        "`messages[0].content[1]` is an object; expected a part {\"type\": \"text\", \"text\": …}, because only text is supported",
    );
}

#[test]
fn messages_keep_their_keys_and_empty_ones_are_ignored() {
    let user = r#"{"role": "user", "content": "hi", "name": "Ann"}"#;
    let call =
        r#"{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "w"}}]}"#;
    let result = r#"{"role": "tool", "content": "20", "tool_call_id": "1"}"#;
    let line = format!(r#"{{"messages": [{user}, {call}, {result}], "tools": [{{"name": "w"}}]}}"#);
    let record = &read(&line)[0];
    let PromptSource::Messages(messages) = &record.prompt else { panic!("{record:?}") };
    assert_eq!(
        json!(messages),
        json!([
            {"role": "user", "content": "hi", "name": "Ann"},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "w"}}]},
            {"role": "tool", "content": "20", "tool_call_id": "1"},
        ])
    );
    assert_eq!(record.tools, [json!({"name": "w"})]);
    assert_eq!(record.completion, None);
    // A call is not a completion.
    assert_eq!(read(&format!(r#"{{"messages": [{user}, {call}]}}"#))[0].completion, None);
    let text = r#"{"prompt": "q", "tools": "[{\"name\": \"w\"}]"}"#;
    assert_eq!(read(text)[0].tools, [json!({"name": "w"})]);
    check_fault(
        r#"{"prompt": "q", "tools": "[{"}"#,
        "`tools` is the string \"[{\"; expected a list of tools, or JSON of one",
    );
    for empty in ["null", "[]", "{}"] {
        let line = format!(
            r#"{{"messages": [{{"role": "user", "content": "hi", "tool_calls": {empty}}}], "tools": []}}"#
        );
        assert_eq!(
            read(&line)[0].prompt,
            PromptSource::Messages(vec![Message::new("user", "hi")]),
            "{empty}"
        );
    }
}

#[test]
fn recorded_completions_are_records() {
    let line = r#"{"step": 1, "prompt": 0, "prompt_text": "p", "prompt_ids": [1, 4], "sample": 0, "text": "c", "reward": 1.0, "completion_ids": [2, 3]}"#;
    let record = &read(line)[0];
    assert_eq!(record.prompt, PromptSource::Ids(vec![1, 4]));
    assert_eq!(record.completion, Some(CompletionSource::Ids(vec![2, 3])));
    assert_eq!(record.fields["text"], "c");
    check_fault(
        &line.replace(r#""prompt_ids": [1, 4], "#, ""),
        "recorded completions need their column `prompt_ids`, which this file was written without; train the run again, or add the ids",
    );
}

#[test]
fn fields_can_be_nested() {
    let record = json!({"reward_model": {"style": "rule", "ground_truth": "4"}, "a.b": 1, "a": {"b": 2, "c.d": {"e": 3}}});
    let fields = record.as_object().unwrap();
    for (path, value) in [
        ("reward_model.ground_truth", Some(json!("4"))),
        ("a.b", Some(json!(1))),
        ("a.c.d.e", Some(json!(3))),
        ("a.c", None),
        ("reward_model.style.x", None),
        (".", None),
        ("", None),
    ] {
        assert_eq!(nested_field(fields, path).cloned(), value, "{path}");
    }
}

/// `grpo sample` and `grpo logprob` write records with both ids and text.
#[test]
fn ids_count_more_than_the_text_that_they_are_of() {
    let line = r#"{"prompt": "p", "prompt_ids": [1], "completion": "c", "completion_ids": [2, 3]}"#;
    let record = &read(line)[0];
    assert_eq!(record.prompt, PromptSource::Ids(vec![1]));
    assert_eq!(record.completion, Some(CompletionSource::Ids(vec![2, 3])));
    assert_eq!(record.fields["prompt"], "p");
    assert_eq!(record.fields["completion"], "c");
    let record = &read(r#"{"messages": [{"role": "user", "content": "q"}], "prompt_ids": [4]}"#)[0];
    assert_eq!((&record.prompt, &record.completion), (&PromptSource::Ids(vec![4]), &None));
}
