//! Compares renders with the ones of `transformers` (see `fixtures/make_golden.py`).

use grpo_jinja::{Failure, Template};
use serde_json::{Map, Value, json};

/// Renders on a thread with the stack that the crate asks for.
fn render(source: &str, variables: &Map<String, Value>) -> Result<String, Failure> {
    let work = || Template::parse(source)?.render(variables.clone());
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(256 << 20);
        thread.spawn_scoped(scope, work).unwrap().join().unwrap()
    })
}

fn failure(source: &str) -> Failure {
    render(source, &Map::new()).expect_err(source)
}

#[test]
fn expressions_and_templates_render_as_in_transformers() {
    let golden: Value = serde_json::from_str(include_str!("fixtures/golden.json")).unwrap();
    let variables = golden["variables"].as_object().unwrap();
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() > 1000, "{}", cases.len());
    let mut wrong = vec![];
    for case in cases {
        let source = case[0].as_str().unwrap();
        let same = match (render(source, variables), case[1].as_str()) {
            (Ok(text), Some(expected)) => text == expected,
            (Err(failure), None) => !failure.reason.is_empty(),
            _ => false,
        };
        if !same {
            wrong.push(format!("{case} became {:?}", render(source, variables)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_not_supported_is_refused() {
    for (source, reason) in [
        ("{{ [1] | random }}", "the filter `random` is not supported"),
        ("{{ 'a' | pprint }}", "the filter `pprint` is not supported"),
        ("{{ lipsum() }}", "the function `lipsum` is not supported"),
        ("{{ self.title() }}", "'function object' has no attribute 'title'"),
        ("{{ 'a'.encode() }}", "the method `encode` of strings is not supported"),
        ("{% include 'x' %}", "the tag `include` is not supported in chat templates"),
        ("{% import 'x' as y %}", "the tag `import` is not supported in chat templates"),
        (
            "{% autoescape true %}{% endautoescape %}",
            "the tag `autoescape` is not supported in chat templates",
        ),
        (
            "{{ 'a'.upper }}",
            "the text of a builtin_function_or_method is not supported; Python's contains an address",
        ),
        (
            "{{ [1] | map('string') }}",
            "the text of a generator is not supported; Python's contains an address",
        ),
        ("{{ 2 ** 127 }}", "the integer has more than 127 bits"),
    ] {
        assert_eq!(failure(source).reason, reason, "{source}");
    }
}

#[test]
fn failures_have_lines_and_pythons_reasons() {
    for (source, line, reason) in [
        ("a\n{{ raise_exception('no tools') }}", 2, "no tools"),
        ("a\n{{ 1 < 'a' }}", 2, "'<' not supported between instances of 'int' and 'str'"),
        ("{{ a.b }}", 1, "'a' is undefined"),
        ("{{ {}.a.b }}", 1, "'dict object' has no attribute 'a'"),
        ("{% for x in none %}{% endfor %}", 1, "'NoneType' object is not iterable"),
        (
            "{% macro f() %}\n{{ 'a' + 1 }}{% endmacro %}\n{{ f() }}",
            2,
            "can only concatenate str (not \"int\") to str",
        ),
        (
            "\n{% for x in y %}",
            2,
            "Unexpected end of template. Jinja was looking for the following tags: 'endfor' or 'else'.",
        ),
        ("\n{{ 'a }}", 2, "unexpected char '\\''"),
        ("\n\n{{ 1 + }}", 3, "unexpected end of print statement"),
    ] {
        let failure = failure(source);
        assert_eq!((failure.line, &*failure.reason), (line, reason), "{source}");
    }
}

#[test]
fn work_and_nesting_have_limits() {
    let brackets = |n: usize| format!("{{{{ {}1{} }}}}", "(".repeat(n), ")".repeat(n));
    let ifs = |n: usize| "{% if true %}".repeat(n) + &"{% endif %}".repeat(n);
    assert!(render(&brackets(100), &Map::new()).is_ok());
    assert!(render(&ifs(100), &Map::new()).is_ok());
    for (source, reason) in [
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}".into(),
            "the template evaluates more than 2000000 expressions",
        ),
        (
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".into(),
            "maximum recursion depth exceeded",
        ),
        (brackets(5000), "tags or expressions are nested more than 120 deep"),
        (ifs(5000), "tags or expressions are nested more than 120 deep"),
        (
            format!("{{{{ 1{} }}}}", " + 1".repeat(5000)),
            "the expression is nested more than 400 deep",
        ),
        (
            format!("{{{{ a{} }}}}", " or a".repeat(5000)),
            "the expression is nested more than 400 deep",
        ),
        (
            format!("{{{{ a{} }}}}", ".a".repeat(5000)),
            "the expression is nested more than 400 deep",
        ),
        ("{{ 'a' * 99999999999 }}".into(), "the text would have more than 8388608 bytes"),
        ("{{ [1] * 99999999999 }}".into(), "the list would have more than 1000000 items"),
        ("{{ 'a'.center(99999999999) }}".into(), "the text would have more than 8388608 bytes"),
        ("{{ '%99999999999d' % 1 }}".into(), "the text would have more than 8388608 bytes"),
        ("{{ '{:99999999999}'.format(1) }}".into(), "the text would have more than 8388608 bytes"),
        ("{{ '%.99999999999f' % 1 }}".into(), "the text would have more than 8388608 bytes"),
        (
            "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}".into(),
            "maximum recursion depth exceeded: the value is nested too deeply",
        ),
    ] {
        let source: String = source;
        assert_eq!(failure(&source).reason, reason, "{}", &source[..source.len().min(60)]);
    }
}

#[test]
fn variables_are_json() {
    let variables = json!({"a": {"b": [1, 2.5, null, true, "x"]}, "n": u64::MAX});
    let text = render("{{ a }} {{ n }}", variables.as_object().unwrap()).unwrap();
    assert_eq!(text, "{'b': [1, 2.5, None, True, 'x']} 18446744073709551615");
}
