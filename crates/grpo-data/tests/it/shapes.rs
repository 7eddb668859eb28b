//! Records as other programs write them, and the keys of `[data]` that say what their columns are.

use grpo_data::{
    ChatOptions, ChatTemplate, Codec, Codecs, CompletionSource, Message, PromptFile, PromptReader,
    PromptRecord, PromptSource, RecordFormat, RecordKeys,
};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use tempfile::TempDir;

pub(crate) fn format(toml: &str) -> RecordFormat {
    let keys: RecordKeys = toml::from_str(toml).unwrap();
    RecordFormat::new(keys).unwrap()
}

pub(crate) fn results(
    name: &str,
    text: &str,
    format: &RecordFormat,
) -> Vec<Result<PromptRecord, String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    let short =
        |error: grpo_data::DataError| error.to_string().replace(path.to_str().unwrap(), name);
    match PromptReader::open(&path).map(|reader| reader.with_format(format)) {
        Ok(reader) => reader.map(|record| record.map_err(short)).collect(),
        Err(error) => vec![Err(short(error))],
    }
}

pub(crate) fn read(rows: &[Value], toml: &str) -> Vec<PromptRecord> {
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    results("p.jsonl", &lines, &format(toml)).into_iter().map(Result::unwrap).collect()
}

#[track_caller]
pub(crate) fn fault(row: &Value, toml: &str) -> String {
    results("p.jsonl", &format!("\n{row}\n"), &format(toml)).pop().unwrap().unwrap_err()
}

pub(crate) fn user(text: &str) -> PromptSource {
    PromptSource::User(text.to_owned())
}

pub(crate) fn completion(text: &str) -> Option<CompletionSource> {
    Some(CompletionSource::Text(text.to_owned()))
}

#[test]
fn ten_rows_of_gsm8k() {
    let answers = ["72", "10", "5", "42", "624", "1,080", "2,350,000", "-5", "0.5", "16"];
    let solution = |answer: &str| format!("1 + 1 = <<1+1=2>>2\nSo #### it is.\n#### {answer}");
    let rows: Vec<Value> = answers
        .iter()
        .map(|answer| json!({"question": format!("Is it {answer}?"), "answer": solution(answer)}))
        .collect();
    for (record, answer) in read(&rows, "answer_extract = '####'").iter().zip(answers) {
        assert_eq!(record.prompt, user(&format!("Is it {answer}?")));
        assert_eq!(record.completion, completion(&solution(answer)));
        assert_eq!(record.fields["answer"], answer);
        assert_eq!(record.shape, Some("`question` and `answer`"));
        assert!(record.has_answer);
    }
    // Without the key, the answer is the text as it is.
    assert_eq!(read(&rows[..1], "")[0].fields["answer"], solution("72"));
}

#[test]
fn ten_rows_of_math() {
    let answers = [
        "2",
        r"\frac{1}{2}",
        r"-\frac{3}{4}",
        r"10^\circ",
        r"\text{A}",
        r"(3, \frac{\pi}{2})",
        "x^2 + 1",
        r"12,\!345",
        r"\{1, 2\}",
        r"50\%",
    ];
    let solution = |answer: &str| format!(r"First $\boxed{{wrong}}$, then $\boxed{{{answer}}}$.");
    let rows = answers
        .map(|answer| json!({"problem": "p", "level": "Level 5", "solution": solution(answer)}));
    for (record, answer) in read(&rows, "answer_extract = 'boxed'").iter().zip(answers) {
        assert_eq!(record.prompt, user("p"));
        assert_eq!(record.completion, completion(&solution(answer)));
        assert_eq!(record.fields["answer"], answer);
        assert_eq!(record.fields["level"], "Level 5");
        assert_eq!(record.shape, Some("`problem` and `solution`"));
    }
}

#[test]
fn ten_rows_of_alpaca() {
    for n in 0..10 {
        let input = ["", "x"][n % 2];
        let row =
            json!({"instruction": format!("Add {n}."), "input": input, "output": format!("{n}!")});
        let record = &read(&[row], "")[0];
        let prompt = if n % 2 == 0 { format!("Add {n}.") } else { format!("Add {n}.\n\nx") };
        assert_eq!(record.prompt, user(&prompt));
        assert_eq!(record.completion, completion(&format!("{n}!")));
        assert_eq!(record.fields["output"], format!("{n}!"));
        assert_eq!(record.shape, Some("`instruction` and `output` (Alpaca)"));
    }
    // A key with our name counts before that of another program.
    let row = json!({"question": "q", "answer": "#### 4", "completion": "2 + 2 = 4"});
    let record = &read(&[row], "")[0];
    assert_eq!((&record.prompt, &record.completion), (&user("q"), &completion("2 + 2 = 4")));
    let talk = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]);
    for (row, toml) in [
        (json!({"chat": talk, "completion": "b"}), ""),
        (json!({"talk": talk, "completion": "b"}), "columns.prompt = 'talk'"),
    ] {
        let record = &read(&[row], toml)[0];
        let PromptSource::Messages(messages) = &record.prompt else { panic!("{record:?}") };
        assert_eq!((messages.len(), &record.completion), (2, &completion("b")));
    }
    // The file of Stanford has the same as `text`, too.
    let row = json!({"instruction": "Hi.", "input": "", "output": "Yo.", "text": "Below is an instruction"});
    let record = &read(&[row], "")[0];
    assert_eq!((&record.prompt, record.is_text), (&user("Hi."), false));
    assert_eq!(record.completion, completion("Yo."));
    let row = json!({"instruction": "Hi.", "input": null, "output": null, "system": "Be brief."});
    let record = &read(&[row], "")[0];
    let messages = vec![Message::new("system", "Be brief."), Message::new("user", "Hi.")];
    assert_eq!(record.prompt, PromptSource::Messages(messages));
    assert_eq!(record.completion, None);
}

#[test]
fn ten_rows_of_sharegpt() {
    for n in 0..10 {
        let row = json!({"id": n, "conversations": [
            {"from": "system", "value": "s"},
            {"from": "human", "value": format!("hi {n}"), "weight": null},
            {"from": "gpt", "value": "wait"},
            {"from": "tool", "value": "20"},
            {"from": "gpt", "value": format!("yo {n}"), "weight": 1.0},
        ]});
        let record = &read(&[row], "")[0];
        let expected =
            [("system", "s"), ("user", &*format!("hi {n}")), ("assistant", "wait"), ("tool", "20")];
        let expected = expected.map(|(role, content)| Message::new(role, content)).to_vec();
        assert_eq!(record.prompt, PromptSource::Messages(expected));
        assert_eq!(record.completion, completion(&format!("yo {n}")));
        assert_eq!(record.shape, Some("`conversations` (ShareGPT)"));
    }
    // The same column, named, and messages of another name.
    let row = json!({"dialog": [{"from": "human", "value": "a"}], "chat": [{"role": "user", "content": "b"}]});
    let message = |text| PromptSource::Messages(vec![Message::new("user", text)]);
    assert_eq!(read(std::slice::from_ref(&row), "columns.prompt = 'chat'")[0].prompt, message("b"));
    assert_eq!(read(&[row], "")[0].prompt, message("a"));
}

#[test]
fn ten_rows_of_verl() {
    for n in 0..10 {
        let row = json!({
            "data_source": "openai/gsm8k", "ability": "math",
            "prompt": [{"role": "user", "content": format!("{n} + {n}?")}],
            "reward_model": {"style": "rule", "ground_truth": (2 * n).to_string()},
            "extra_info": {"index": n, "split": "train", "answer": null},
        });
        let record = &read(&[row], "")[0];
        let messages = vec![Message::new("user", format!("{n} + {n}?"))];
        assert_eq!(record.prompt, PromptSource::Messages(messages));
        assert_eq!(record.fields["answer"], (2 * n).to_string());
        assert_eq!(record.fields["reward_model"]["style"], "rule");
        assert_eq!(record.shape, Some("`prompt` and `reward_model.ground_truth` (verl)"));
    }
    // An answer that is there is the answer.
    let row = json!({"prompt": "q", "answer": 1, "reward_model": {"ground_truth": 2}});
    let record = &read(&[row], "")[0];
    assert_eq!((&record.fields["answer"], record.shape), (&json!(1), None));
}

#[test]
fn a_question_that_needs_its_context_is_not_guessed() {
    for key in ["choices", "options", "context", "passage"] {
        let said = fault(&json!({"question": "q", key: ["a"], "answer": "a"}), "");
        let expect = format!(
            "p.jsonl:2: the prompt is missing; use one of the keys `prompt`, `messages`, `prompt_ids`, `text` (found `question`, `{key}`, `answer`); `question` needs `{key}`: write both with data.template, such as \"{{{{ question }}}}\\n{{{{ {key} }}}}\", or name one column with data.columns = {{ prompt = \"question\" }}"
        );
        assert_eq!(said, expect);
    }
    assert_eq!(read(&[json!({"question": "q", "context": null})], "")[0].prompt, user("q"));
}

#[test]
fn arrays_are_read_element_by_element() {
    let rows =
        json!([{"prompt": "a,]\"\\"}, {"prompt": "b", "x": [1, {"y": []}]}, {"prompt": "é"}]);
    for text in [
        rows.to_string(),
        serde_json::to_string_pretty(&rows).unwrap(),
        format!("\u{feff} \r\n{rows}\n\n"),
    ] {
        for name in ["p.json", "p.jsonl"] {
            let found = results(name, &text, &RecordFormat::default());
            let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
            let prompts: Vec<_> =
                found.iter().map(|record| (record.line, &record.prompt)).collect();
            let text = |text: &str| PromptSource::Text(text.to_owned());
            assert_eq!(
                prompts,
                [(1, &text("a,]\"\\")), (2, &text("b")), (3, &text("é"))],
                "{name}"
            );
        }
    }
    for empty in ["[]", "[ \n]\n"] {
        assert_eq!(results("p.json", empty, &RecordFormat::default()), []);
    }
    for (text, expect) in [
        (
            "[1]",
            "p.json:1: an element of the array is not an object: found 1; expected an object at column 1; records are such as",
        ),
        (
            "[{\"prompt\": \"a\"}, {\"prompt\"",
            "p.json:2: the file ends inside of the JSON array; write it again",
        ),
        (
            "[{\"prompt\": \"a\"},]",
            "p.json:2: an element of the JSON array is missing before `,` or `]`; write the file again",
        ),
        ("[,]", "p.json:1: an element of the JSON array is missing"),
        (
            "[{\"prompt\": \"a\"}] {}",
            "p.json:1: there is more text after the end of the JSON array; ",
        ),
        (
            "[{\"prompt\": \"a\", \"prompt\": \"b\"}]",
            "p.json:1: duplicate key `prompt`; keep one of them",
        ),
        ("[", "p.json:1: the file ends inside of the JSON array"),
        ("[{\"prompt\": 3}]", "p.json:1: `prompt` is the value 3; expected text"),
    ] {
        let found = results("p.json", text, &RecordFormat::default());
        let error = found.last().unwrap().clone().unwrap_err();
        assert!(error.starts_with(expect), "{error}");
    }
}

#[test]
fn columns_are_named_with_dots() {
    let row = json!({"data": {"q": "2 + 2?", "gold": {"a": 4}}, "reply": "It is 4.", "prompt": "other", "fns": [{"name": "f"}]});
    let toml = "columns = { prompt = 'data.q', answer = 'data.gold.a', completion = 'reply', tools = 'fns' }";
    let record = &read(std::slice::from_ref(&row), toml)[0];
    assert_eq!(record.prompt, user("2 + 2?"));
    assert_eq!(record.completion, completion("It is 4."));
    assert_eq!(record.fields["answer"], 4);
    assert_eq!(record.fields["prompt"], "other");
    assert_eq!(record.tools, [json!({"name": "f"})]);
    // Only the answer is named.
    let record =
        &read(std::slice::from_ref(&row), "columns.answer = 'reply'\nanswer_extract = '(\\d+)'")[0];
    assert_eq!(record.prompt, PromptSource::Text("other".to_owned()));
    assert_eq!(record.fields["answer"], "4");
    let missing =
        "p.jsonl:2: the column `data.x` of data.columns.prompt is missing; the record has ";
    let said = fault(&row, "columns.prompt = 'data.x'");
    assert!(said.starts_with(missing), "{said}");
    assert!(
        fault(&json!({"q": null}), "columns.prompt = 'q'")
            .contains("`q` of data.columns.prompt is null; remove the record")
    );
    let tools = |value: Value| json!({"prompt": "q", "fns": value});
    for value in [json!(null), json!("")] {
        assert!(read(&[tools(value)], "columns.tools = 'fns'")[0].tools.is_empty());
    }
    assert_eq!(
        fault(&tools(json!({"name": "f"})), "columns.tools = 'fns'"),
        "p.jsonl:2: `fns` is an object; expected a list of tools, or JSON of one"
    );
    let said = fault(&json!({"q": {"a": 1}}), "columns.prompt = 'q'");
    assert!(said.starts_with("p.jsonl:2: `q` is an object; expected text"), "{said}");
    let said = fault(&json!({"q": []}), "columns.prompt = 'q'");
    assert!(said.starts_with("p.jsonl:2: `q` is an empty list; expected text"), "{said}");
}

#[test]
fn system_messages_come_first_once() {
    let system = "system = 'Be brief.'";
    let messages = |list: &[(&str, &str)]| {
        PromptSource::Messages(list.iter().map(|(role, text)| Message::new(*role, *text)).collect())
    };
    let both = messages(&[("system", "Be brief."), ("user", "q")]);
    for row in [
        json!({"prompt": "q"}),
        json!({"question": "q", "answer": "a"}),
        json!({"prompt": [{"role": "user", "content": "q"}]}),
        json!({"conversations": [{"from": "human", "value": "q"}]}),
    ] {
        assert_eq!(read(std::slice::from_ref(&row), system)[0].prompt, both, "{row}");
    }
    for role in ["system", "developer"] {
        let row =
            json!({"messages": [{"role": role, "content": "s"}, {"role": "user", "content": "q"}]});
        assert_eq!(read(&[row], system)[0].prompt, messages(&[(role, "s"), ("user", "q")]));
    }
    assert!(
        fault(&json!({"text": "t"}), system)
            .starts_with("p.jsonl:2: a `text` is not a conversation")
    );
    assert!(
        fault(&json!({"prompt_ids": [1]}), system)
            .starts_with("p.jsonl:2: the prompt is token ids")
    );
}

#[test]
fn templates_are_rendered_over_the_record() {
    let toml = "template = \"{{ question }}\\n{% for c in choices %}{{ loop.index }}) {{ c.text }}\\n{% endfor %}\"";
    let row =
        json!({"question": "Which?", "choices": [{"text": "a"}, {"text": "b"}], "answer": "a"});
    assert_eq!(read(&[row], toml)[0].prompt, user("Which?\n1) a\n2) b\n"));
    let said = fault(&json!({"problem": "p"}), "template = '{{ question }}'");
    assert_eq!(
        said,
        "p.jsonl:2: data.template fails in its line 1: 'question' is undefined; the record has `problem`"
    );
    let said = fault(
        &json!({"a": "x"}),
        "template = \"{% for i in range(99999999) %}{{ i }}{% endfor %}\"",
    );
    assert!(said.starts_with("p.jsonl:2: data.template fails in its line 1: "), "{said}");
}

#[test]
fn wrong_keys_are_refused_before_a_file_is_read() {
    for (toml, key, sentence) in [
        (
            "columns.promt = 'q'",
            "columns.promt",
            "unknown name `promt` in data.columns; expected `prompt`, `completion`, `answer`, `tools`",
        ),
        (
            "columns.prompt = ''",
            "columns.prompt",
            "data.columns.prompt is empty; expected the name of a column",
        ),
        ("template = '{{ a'", "template", "data.template does not parse in its line 1: "),
        (
            "template = '{{ a }}'\ncolumns.prompt = 'a'",
            "template",
            "data.template and data.columns.prompt both say what the prompt is; ",
        ),
        (
            "answer_extract = 'boxd'",
            "answer_extract",
            "data.answer_extract = \"boxd\" has no group; expected \"####\", \"boxed\", or a regular expression",
        ),
    ] {
        let fault = RecordFormat::new(toml::from_str(toml).unwrap()).unwrap_err();
        assert_eq!(fault.key, key);
        assert!(fault.to_string().starts_with(sentence), "{fault}");
    }
}

#[test]
fn hostile_rows_are_refused_with_their_line() {
    for (row, toml, sentence) in [
        (
            json!({"instruction": 3, "output": "x"}),
            "",
            "`instruction` is the value 3; expected a text",
        ),
        (
            json!({"instruction": "a", "input": [1], "output": "x"}),
            "",
            "`input` is a list; expected a text",
        ),
        (json!({"instruction": "a", "output": {}}), "", "`output` is an object; expected a text"),
        (
            json!({"conversations": []}),
            "",
            "`conversations` is an empty list; expected a list of messages",
        ),
        (
            json!({"conversations": [{"from": "bing", "value": "x"}]}),
            "",
            "`conversations[0].from` is the string \"bing\"; expected `human`, `gpt`, `system` or `tool`",
        ),
        (
            json!({"conversations": [{"from": "human"}]}),
            "",
            "`conversations[0].value` is null; expected a text",
        ),
        (
            json!({"conversations": [{"from": "human", "value": "x", "content": "y"}]}),
            "",
            "`conversations[0]` has both `value` and `content`; keep one of them",
        ),
        (
            json!({"conversations": [{"from": "gpt", "value": "x"}]}),
            "",
            "`conversations` has only an assistant message",
        ),
        (json!({"question": ["q"], "answer": "a"}), "", "`question` is a list; expected a text"),
        (
            json!({"question": "q", "answer": 72}),
            "answer_extract = '####'",
            "`answer` is the value 72, which needs no data.answer_extract; remove data.answer_extract",
        ),
        (
            json!({"question": "q", "answer": ["72"]}),
            "answer_extract = '####'",
            "`answer` is a list; expected a text for data.answer_extract",
        ),
        (
            json!({"question": "q"}),
            "answer_extract = '####'",
            "the record has no answer for data.answer_extract; name its column with data.columns.answer",
        ),
        (
            json!({"messages": [{"role": 1, "content": "q"}]}),
            "",
            "`messages[0].role` is the value 1; expected a text",
        ),
    ] {
        let said = fault(&row, toml);
        assert!(said.starts_with(&format!("p.jsonl:2: {sentence}")), "{said}");
        assert!(said.len() < 400 && !said.contains('\n'), "{said}");
    }
    let deep =
        format!("{{\"question\": \"q\", \"answer\": {}{}}}", "[".repeat(200), "]".repeat(200));
    let said = results("p.jsonl", &deep, &RecordFormat::default()).pop().unwrap().unwrap_err();
    assert!(said.starts_with("p.jsonl:1: ") && said.contains("nested too deeply"), "{said}");
    let long = json!({"question": "é".repeat(5 << 20), "answer": "#### 1"});
    assert_eq!(read(&[long], "answer_extract = '####'")[0].fields["answer"], "1");
}

/// A folder with a tokenizer and perhaps a chat template.
fn model(template: Option<&str>) -> (TempDir, Codec) {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer.json");
    std::fs::copy(fixture, folder.path().join("tokenizer.json")).unwrap();
    if let Some(template) = template {
        std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    }
    let codec = Codecs::default().read(folder.path()).unwrap();
    (folder, codec)
}

fn prompts(text: &str, toml: &str, template: Option<&str>) -> Result<PromptFile, String> {
    let (folder, codec) = model(template);
    let path = folder.path().join("p.jsonl");
    std::fs::write(&path, text).unwrap();
    let options = ChatOptions::for_answer(None);
    PromptFile::read(&path, &codec, &options, 1000, &format(toml))
        .map_err(|error| error.to_string().replace(path.to_str().unwrap(), "p.jsonl"))
}

const CHAT: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";

#[test]
fn a_question_is_a_message_if_the_model_has_a_template() {
    let text = "{\"question\": \"q\", \"answer\": \"#### 7\"}\n";
    let read = prompts(text, "answer_extract = '####'", Some(CHAT)).unwrap();
    let (_folder, codec) = model(Some(CHAT));
    let ids = |text: &str| {
        let text = PromptSource::Text(text.to_owned());
        let (_folder, plain) = model(None);
        plain.prompt(&text, &ChatOptions::default()).unwrap()
    };
    assert_eq!(codec.decode(&read.prompts[0].ids), codec.decode(&ids("user:q;")));
    assert_eq!(read.prompts[0].fields["prompt"], json!([{"role": "user", "content": "q"}]));
    assert_eq!(
        read.report.to_string(),
        "1 record with `question` and `answer`, answers such as \"7\" (line 1)"
    );
    let plain = prompts(text, "", None).unwrap();
    assert_eq!(plain.prompts[0].ids, ids("q"));
    assert!(!plain.prompts[0].fields.contains_key("prompt"));
    assert_eq!(
        prompts(text, "system = 's'", None).unwrap_err(),
        "the model has no chat template, so data.system cannot be shown to it; remove it, or begin data.template with its text"
    );
}

#[test]
fn rows_without_an_answer_are_skipped_unless_they_are_most() {
    let rows = |answers: &[&str]| {
        answers.iter().fold(String::new(), |mut all, answer| {
            writeln!(all, "{}", json!({"question": "q", "answer": answer})).unwrap();
            all
        })
    };
    let key = "answer_extract = '####'";
    let read = prompts(&rows(&["#### 1", "two", "#### 3"]), key, None).unwrap();
    assert_eq!(read.lines, [1, 3]);
    assert_eq!(
        read.report.to_string(),
        "3 records with `question` and `answer`, answers such as \"1\" (line 1), 1 skipped without an answer (line 2)"
    );
    let said = prompts(&rows(&["1", "2", "#### 3"]), key, None).unwrap_err();
    assert_eq!(
        said,
        "p.jsonl:1: data.answer_extract = \"####\" finds no answer in 2 of 3 records, this one first; correct it, name the column of the answer with data.columns, or remove it if `answer` is the bare answer"
    );
}

#[test]
fn a_template_that_leaves_out_tools_is_refused() {
    let call = json!({"messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "w"}}]},
        {"role": "tool", "content": "20"},
    ]});
    let said = prompts(&format!("{call}\n"), "", Some(CHAT)).unwrap_err();
    assert!(said.starts_with("p.jsonl:1: the chat template in `"), "{said}");
    assert!(said.ends_with("does not use `tool_calls`, so the model would not see them; write them as text in `content`, remove the record, or choose a model with tools"), "{said}");
    let tools = json!({"prompt": [{"role": "user", "content": "q"}], "tools": [{"name": "w"}]});
    let said = prompts(&format!("{tools}\n"), "", Some(CHAT)).unwrap_err();
    assert!(said.contains("does not use `tools`, so the model would not see them"), "{said}");
    let (folder, _) = model(Some(
        "{{ tools | tojson }}{% for m in messages %}{{ m.content is none }}{{ m.tool_calls | tojson }}{% endfor %}",
    ));
    let template = ChatTemplate::from_folder(folder.path()).unwrap().unwrap();
    let record =
        &read(&[json!({"messages": [call["messages"][1]], "tools": [{"name": "w"}]})], "")[0];
    let PromptSource::Messages(messages) = &record.prompt else { panic!("{record:?}") };
    let options = record.chat_options(&ChatOptions::default());
    assert_eq!(
        template.render(messages, &options).unwrap(),
        "[{\"name\": \"w\"}]True[{\"function\": {\"name\": \"w\"}}]"
    );
}
