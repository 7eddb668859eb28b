//! Rows with the columns of well-known data sets: each is read as its authors mean it, or refused with the key of
//! `[data]` that says what it is.

use crate::shapes::{completion, fault, read, user};
use grpo_data::{CompletionSource, Message, PromptRecord, PromptSource};
use serde_json::{Value, json};

#[track_caller]
fn one(row: Value, toml: &str) -> PromptRecord {
    read(&[row], toml).remove(0)
}

fn messages(list: &[(&str, &str)]) -> PromptSource {
    PromptSource::Messages(list.iter().map(|(role, text)| Message::new(*role, *text)).collect())
}

/// Checks the prompt and the completion of a row.
#[track_caller]
fn check(row: Value, toml: &str, prompt: PromptSource, answer: Option<&str>) -> PromptRecord {
    let record = one(row, toml);
    assert_eq!(record.prompt, prompt);
    assert_eq!(record.completion, answer.and_then(completion));
    record
}

/// Checks what a refusal says, and that the key which it names makes the row readable.
#[track_caller]
fn refused(row: &Value, sentence: &str, toml: &str, prompt: PromptSource) -> PromptRecord {
    let said = fault(row, "");
    assert!(said.contains(sentence), "{said}");
    assert!(said.len() < 500 && !said.contains('\n'), "{said}");
    let record = one(row.clone(), toml);
    assert_eq!(record.prompt, prompt);
    record
}

#[test]
fn conversations() {
    let chat = [("user", "a"), ("assistant", "b"), ("user", "c")];
    let list = json!([
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"},
    ]);
    // Tulu 3, UltraChat and No Robots (with the first message again in `prompt`), and JSON in a string.
    let tulu = json!({"id": "x", "messages": list, "source": "ai2"});
    check(tulu, "", messages(&chat), Some("d"));
    let ultrachat = json!({"prompt": "a", "prompt_id": "f0", "messages": list});
    let sentence = "both `prompt` and `messages` are present; say which is the prompt with data.columns = { prompt = \"messages\" }";
    let key = "columns.prompt = 'messages'";
    let record = refused(&ultrachat, sentence, key, messages(&chat));
    assert_eq!(record.completion, completion("d"));
    check(ultrachat, "columns.prompt = 'prompt'", user("a"), None);
    check(json!({"messages": list.to_string()}), "", messages(&chat), Some("d"));
    // OpenHermes, LMSYS-Chat and Capybara.
    let hermes = json!({"id": null, "category": "orca", "system_prompt": null, "conversations": [
        {"from": "system", "value": "s", "weight": null}, {"from": "human", "value": "a", "weight": 0},
        {"from": "gpt", "value": "d", "weight": 1},
    ]});
    let PromptSource::Messages(found) = one(hermes, "").prompt else { panic!() };
    assert_eq!((found.len(), found[1].role.as_str()), (2, "user"));
    let lmsys = json!({"conversation_id": "x", "model": "m", "turn": 2, "conversation": list, "redacted": false});
    check(lmsys, "", messages(&chat), Some("d"));
    let capybara = json!({"source": "x", "conversation": [{"input": "a", "output": "b"}, {"input": "c", "output": "d"}]});
    check(capybara, "", messages(&chat), Some("d"));
    // The first UltraChat.
    let data = json!({"id": "0", "data": ["a", "b"]});
    let sentence = "name its column with data.columns = { prompt = \"COLUMN\" }, or write it with data.template";
    refused(&data, sentence, "template = '{{ data[0] }}'", user("a"));
}

#[test]
fn instructions() {
    let dolly = |context: &str| json!({"instruction": "a", "context": context, "response": "b", "category": "qa"});
    let record = check(dolly("c"), "", user("a\n\nc"), Some("b"));
    assert_eq!(record.shape, Some("`instruction` and `response` (Dolly)"));
    check(dolly(""), "", user("a"), Some("b"));
    let orca = json!({"id": "x", "system_prompt": "s", "question": "a", "response": "b"});
    check(orca, "", messages(&[("system", "s"), ("user", "a")]), Some("b"));
    let orca = json!({"id": "x", "system_prompt": "", "question": "a", "response": "b"});
    check(orca, "", user("a"), Some("b"));
    let meta =
        json!({"query": "a", "response": "b", "type": "GSM_Rephrased", "original_question": "x"});
    assert_eq!(check(meta, "", user("a"), Some("b")).shape, Some("`query` and `response`"));
    let feedback = json!({"source": "x", "instruction": "a", "models": ["m"], "completions": [{"response": "b"}]});
    let sentence = "name its column with data.columns = { prompt = \"instruction\" }";
    refused(&feedback, sentence, "columns.prompt = 'instruction'", user("a"));
}

#[test]
fn mathematics() {
    let list = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
    let numina = json!({"source": "x", "problem": "a", "solution": "b", "messages": list});
    check(numina, "", messages(&[("user", "a")]), Some("b"));
    let numina = json!({"problem": "a", "solution": "b", "answer": "4", "problem_type": "Algebra", "source": "x"});
    assert_eq!(check(numina, "", user("a"), Some("b")).fields["answer"], "4");
    let deepscaler = json!({"problem": "a", "answer": "4", "solution": ""});
    assert_eq!(one(deepscaler, "").fields["answer"], "4");
    let big = json!({"problem": "a", "answer": "4", "source": "x", "domain": ["Algebra"], "llama8b_solve_rate": 0.5});
    check(big, "", user("a"), Some("4"));
    let dapo = json!({
        "data_source": "math_dapo", "ability": "MATH", "prompt": [{"role": "user", "content": "a"}],
        "reward_model": {"ground_truth": "34", "style": "rule-lighteval/MATH_v2"}, "extra_info": {"index": "x"},
    });
    assert_eq!(check(dapo, "", messages(&[("user", "a")]), None).fields["answer"], "34");
    let countdown = json!({"target": 98, "nums": [44, 19, 35]});
    let template = "template = 'Use {{ nums }} to make {{ target }}.'\ncolumns.answer = 'target'";
    let record = refused(
        &countdown,
        "or write it with data.template",
        template,
        user("Use [44, 19, 35] to make 98."),
    );
    assert_eq!(record.fields["answer"], 98);
    let aime = json!({"ID": "1983-1", "Year": 1983, "Question": "a", "Answer": "60"});
    let sentence = "name its column with data.columns = { prompt = \"Question\" }";
    refused(&aime, sentence, "columns = { prompt = 'Question', answer = 'Answer' }", user("a"));
}

#[test]
fn questions_with_choices_and_passages() {
    let squad = json!({"id": "x", "title": "t", "context": "c", "question": "q", "answers": {"text": ["a"], "answer_start": [0]}});
    let template = "template = \"{{ context }}\\n{{ question }}\"";
    let sentence = "`question` needs `context`: write both with data.template, such as \"{{ context }}\\n{{ question }}\"";
    refused(&squad, sentence, template, user("c\nq"));
    let boolq = json!({"question": "q", "answer": true, "passage": "p"});
    refused(
        &boolq,
        "`question` needs `passage`",
        "template = '{{ passage }} {{ question }}?'",
        user("p q?"),
    );
    let mmlu = json!({"question": "q", "subject": "law", "choices": ["x", "y"], "answer": 1});
    let template = "template = \"{{ question }}{% for choice in choices %}{{ '\\n' }}{{ loop.index0 }}: {{ choice }}{% endfor %}\"";
    let sentence = "`question` needs `choices`: write both with data.template, such as \"{{ question }}\\n{{ choices }}\"";
    let record = refused(&mmlu, sentence, template, user("q\n0: x\n1: y"));
    assert_eq!(record.fields["answer"], 1);
    let arc = json!({"id": "x", "question": "q", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "B"});
    let keys = "template = '{{ question }} {{ choices.label[0] }}: {{ choices.text[0] }}'\ncolumns.answer = 'answerKey'";
    let record = refused(&arc, "`question` needs `choices`", keys, user("q A: x"));
    assert_eq!(record.fields["answer"], "B");
    let hellaswag = json!({"ctx": "c", "endings": ["x", "y"], "label": "0"});
    refused(&hellaswag, "or write it with data.template", "template = '{{ ctx }}'", user("c"));
    let trivia =
        json!({"question": "q", "question_id": "1", "answer": {"value": "a", "aliases": ["b"]}});
    assert_eq!(
        check(trivia, "columns.answer = 'answer.value'", user("q"), None).fields["answer"],
        "a"
    );
}

#[test]
fn programs() {
    let mbpp = json!({
        "task_id": 1, "text": "Write f.", "code": "def f(): pass", "test_list": ["assert f() is None"],
        "test_setup_code": "", "challenge_test_list": [],
    });
    let record = check(mbpp, "", user("Write f."), Some("def f(): pass"));
    assert!(!record.is_text);
    assert_eq!(record.shape, Some("`text` and `code` (MBPP)"));
    let sanitized = json!({"task_id": 1, "prompt": "Write f.", "code": "def f(): pass", "test_imports": [], "test_list": ["x"]});
    check(sanitized, "", PromptSource::Text("Write f.".into()), None);
    let human = json!({"task_id": "HumanEval/0", "prompt": "def f():\n", "canonical_solution": "    pass\n", "test": "x", "entry_point": "f"});
    let answer = one(human.clone(), "columns.completion = 'canonical_solution'").completion;
    assert_eq!(answer, completion("    pass\n"));
    check(human, "", PromptSource::Text("def f():\n".into()), None);
    let apps = |starter: &str| {
        json!({
            "problem_id": 0, "question": "q", "solutions": "[\"x\"]", "input_output": "{}", "difficulty": "interview",
            "url": "", "starter_code": starter,
        })
    };
    check(apps(""), "", user("q"), None);
    let template = "template = '{{ question }}|{{ starter_code }}'";
    refused(&apps("def f():"), "`question` needs `starter_code`", template, user("q|def f():"));
    let text = one(json!({"text": "all of it"}), "");
    assert_eq!((text.is_text, text.completion), (true, completion("all of it")));
}

#[test]
fn tools() {
    let weather = json!({"type": "function", "function": {"name": "weather", "parameters": {}}});
    let xlam =
        json!({"id": 0, "query": "a", "answers": "[]", "tools": json!([weather]).to_string()});
    let sentence = "name its column with data.columns = { prompt = \"query\" }";
    let record = refused(&xlam, sentence, "columns.prompt = 'query'", user("a"));
    assert_eq!(record.tools, [weather]);
    let ace = json!({"system": "s", "conversations": [
        {"from": "user", "value": "a"}, {"from": "assistant", "value": "[f()]"}, {"from": "tool", "value": "1"},
        {"from": "assistant", "value": "b"},
    ]});
    let expected = [("system", "s"), ("user", "a"), ("assistant", "[f()]"), ("tool", "1")];
    check(ace, "", messages(&expected), Some("b"));
    let glaive = json!({"system": "SYSTEM: s", "chat": "USER: a\n\nASSISTANT: b"});
    let template = "template = \"{{ chat.split('ASSISTANT:')[0] }}\"";
    refused(&glaive, "or write it with data.template", template, user("USER: a\n\n"));
    // Arguments as OpenAI's API writes them, as templates read them, and calls in a string.
    let object =
        json!([{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]);
    let text = json!([{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]);
    for calls in [object.clone(), text.clone(), Value::from(text.to_string())] {
        for content in [json!(null), json!(""), json!([{"type": "text", "text": ""}])] {
            let row = json!({"messages": [
                {"role": "user", "content": "a", "tool_calls": [], "name": null},
                {"role": "assistant", "content": content, "tool_calls": calls},
            ]});
            let PromptSource::Messages(found) = one(row, "").prompt else { panic!() };
            assert_eq!(found[0], Message::new("user", "a"));
            assert_eq!((found[1].content.as_str(), &found[1].more["tool_calls"]), ("", &object));
        }
    }
    let old = json!({"messages": [{"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{\"x\": 1}"}}]});
    let PromptSource::Messages(found) = one(old, "").prompt else { panic!() };
    assert_eq!(found[0].more["function_call"], json!({"name": "f", "arguments": {"x": 1}}));
    // Arguments that are not JSON stay as they are, and a message without calls has none.
    let odd = json!({"messages": [
        {"role": "user", "content": "a", "tool_calls": "[]"},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": "x = 1"}]},
    ]});
    let PromptSource::Messages(found) = one(odd, "").prompt else { panic!() };
    assert!(found[0].more.is_empty());
    assert_eq!(found[1].more["tool_calls"][0]["arguments"], "x = 1");
}

#[test]
fn preferences() {
    let pair = |answer: &str| json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": answer}]);
    let binarized = json!({"chosen": pair("b"), "rejected": pair("c"), "score_chosen": 8.5});
    let sentence = "name its column with data.columns = { prompt = \"chosen\" }";
    let record =
        refused(&binarized, sentence, "columns.prompt = 'chosen'", messages(&[("user", "a")]));
    assert_eq!(record.completion, completion("b"));
    let texts = json!({"prompt": "a", "chosen": "b", "rejected": "c"});
    let record = one(texts, "columns.completion = 'chosen'");
    assert_eq!(
        (record.prompt, record.completion),
        (PromptSource::Text("a".into()), completion("b"))
    );
    let answers = json!({"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}]});
    check(answers, "columns.completion = 'chosen'", messages(&[("user", "a")]), Some("b"));
    let harmless = json!({"chosen": "\n\nHuman: a\n\nAssistant: b", "rejected": "\n\nHuman: a\n\nAssistant: c"});
    let template = "template = \"{{ chosen.split('Assistant:')[0] }}\"";
    refused(&harmless, "or write it with data.template", template, user("\n\nHuman: a\n\n"));
}

#[test]
fn values_of_other_kinds() {
    let expected = "; other values need data.template";
    for prompt in [
        json!([["a"]]),
        json!([[{"role": "user", "content": "a"}]]),
        json!({"text": "a"}),
        json!(["a", "b"]),
    ] {
        let said = fault(&json!({"prompt": prompt}), "");
        assert!(said.ends_with(expected), "{said}");
    }
    check(json!({"prompt": ["a", "b"]}), "template = '{{ prompt[1] }}'", user("b"), None);
    // Empty extras say nothing.
    for empty in
        [json!(null), json!(""), json!([]), json!({}), json!({"bytes": null, "path": null})]
    {
        let row = json!({"prompt": "a", "images": empty, "tools": [], "question": null, "x": {}});
        check(row, "", PromptSource::Text("a".into()), None);
    }
    for key in ["image", "images", "video", "audio"] {
        let row = json!({"problem": "a", key: [{"bytes": "ff"}], "answer": "b"});
        let sentence = format!("the record has `{key}`, which a model of texts would not see");
        refused(&row, &sentence, "columns.prompt = 'problem'", user("a"));
    }
    let part = json!({"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a"}]}]});
    assert!(fault(&part, "").contains("because only text is supported"));
    let ids = one(json!({"prompt_ids": [1], "completion_ids": [2], "image": null}), "");
    assert_eq!(ids.completion, Some(CompletionSource::Ids(vec![2])));
}
