//! Tests with Python functions that return something else than one number per completion.

use serde_json::json;

use super::{python, score, totals};

/// Returns the reasons for all completions.
fn reasons(code: &str, count: usize) -> Vec<String> {
    let (_folder, reward) = python(code, json!({}));
    let outcomes = score(&*reward, &vec!["C"; count]);
    let reason = |outcome: &crate::Outcome| match outcome.failure() {
        Some(reason) => reason.to_owned(),
        None => panic!("{code}: {outcome:?}"),
    };
    outcomes.iter().map(reason).collect()
}

/// A batch is not scored one by one to find the completion whose result fits.
#[test]
fn a_result_of_the_wrong_length_fails_the_batch_with_its_numbers() {
    const LIST: &str = "; return a list with one number or None per completion";
    for (result, expected) in [
        ("[1.0]", "reward returned 1 rewards for 16 completions".to_owned()),
        ("[]", "reward returned 0 rewards for 16 completions".to_owned()),
        ("[1.0] * 17", "reward returned 17 rewards for 16 completions".to_owned()),
        ("(1.0,) * 15", "reward returned 15 rewards for 16 completions".to_owned()),
        ("iter([1.0] * 3)", "reward returned 3 rewards for 16 completions".to_owned()),
        ("iter([1.0] * 30)", "reward returned more than 16 rewards for 16 completions".to_owned()),
        (
            "itertools.repeat(0.5)",
            "reward returned more than 16 rewards for 16 completions".to_owned(),
        ),
        (
            "(n for n in itertools.count())",
            "reward returned more than 16 rewards for 16 completions".to_owned(),
        ),
        (
            "sum(len(c) for c in completions) / 16",
            format!("reward returned 1.0 for 16 completions{LIST}"),
        ),
        ("None", format!("reward returned None for 16 completions{LIST}")),
        ("'x' * 16", format!("reward returned 'xxxxxxxxxxxxxxxx' for 16 completions{LIST}")),
        ("{0.5}", format!("reward returned {{0.5}} for 16 completions{LIST}")),
        (
            "{c: 1.0 for c in completions}",
            format!("reward returned {{'C': 1.0}} for 16 completions{LIST}"),
        ),
    ] {
        let code =
            format!("import itertools\ndef reward(completions, **kwargs):\n    return {result}\n");
        assert_eq!(reasons(&code, 16), vec![expected; 16], "{result}");
    }
}

#[test]
fn values_that_are_not_real_numbers_are_refused() {
    for (value, expected) in [
        ("1j", "reward returned 1j, which is a complex number; return a real number or None"),
        ("complex(1, 0)", "reward returned (1+0j), which is a complex number"),
        ("Dtype('c')", "which is a complex number"),
        ("Dtype('U')", "which is text"),
        ("Dtype('M')", "which is a time"),
        ("'1'", "reward returned '1', which is text; return a number or None"),
        ("bytearray(b'1')", "which is text"),
        (
            "[1.0]",
            "reward returned [1.0], which is not a number; return a number or None (TypeError",
        ),
        ("10 ** 400", "which is not a number; return a number or None (OverflowError"),
        ("float('nan')", "the reward is NaN; expected a finite number or null"),
    ] {
        let dtype = "class Dtype:\n    def __init__(self, kind): self.dtype = type('D', (), {'kind': kind})\n    def __float__(self): return 1.0\n    def __repr__(self): return 'value'\n";
        for signature in ["completions, **kwargs", "completion"] {
            let value = match signature {
                "completion" => value.to_owned(),
                _ => format!("[{value}] * len(completions)"),
            };
            let code = format!("{dtype}def reward({signature}):\n    return {value}\n");
            for (index, reason) in reasons(&code, 2).iter().enumerate() {
                let item = format!("completion \"C\" (item {} of 2): ", index + 1);
                assert!(reason.starts_with(&item), "{reason}");
                assert!(reason.contains(expected), "{expected}: {reason}");
            }
        }
    }
}

/// Only the completion at fault fails, and the function is called once.
#[test]
fn a_value_that_is_refused_is_not_asked_for_again() {
    let code = "n = 0\ndef reward(completions, **kwargs):\n    global n\n    n += 1\n    return [n, '2', None, n]\n";
    let (_folder, reward) = python(code, json!({"cache": false}));
    for call in [1.0, 2.0] {
        let outcomes = score(&*reward, &["a", "b", "c", "d"]);
        assert_eq!(totals(&outcomes), [Some(call), None, None, Some(call)]);
        assert!(outcomes[1].failure().unwrap().contains("which is text"));
        assert!(outcomes[2].failure().is_none());
    }
}

#[test]
fn functions_and_objects_can_be_async() {
    for code in [
        "async def reward(completion):\n    return 1.5\n",
        "async def reward(completions, **kwargs):\n    return [1.5] * len(completions)\n",
        "class Judge:\n    async def __call__(self, completion):\n        return 1.5\nreward = Judge()\n",
        "class Judge:\n    async def __call__(self, completions, **kwargs):\n        return [1.5] * len(completions)\nreward = Judge()\n",
        "async def later(completion):\n    return 1.5\ndef reward(completion):\n    return later(completion)\n",
        "import functools\nasync def later(factor, completion):\n    return factor\nreward = functools.partial(later, 1.5)\n",
    ] {
        let (_folder, reward) = python(code, json!({}));
        assert_eq!(totals(&score(&*reward, &["a", "b"])), [Some(1.5); 2], "{code}");
    }
}

/// JSON does not have half of a surrogate pair.
#[test]
fn text_that_is_not_unicode_is_replaced() {
    let code = "def reward(completion):\n    raise ValueError('\\ud800 is wrong')\n";
    for reason in reasons(code, 3) {
        assert!(reason.ends_with("ValueError: ? is wrong"), "{reason}");
    }
    let code = "def reward(completions, log_extra, **kwargs):\n    log_extra('\\ud800', ['\\udfff', 'b'])\n    return [1, 2]\n";
    let (_folder, reward) = python(code, json!({}));
    assert_eq!(totals(&score(&*reward, &["a", "b"])), [Some(1.0), Some(2.0)]);
    let endless = "def reward(completions, log_extra, **kwargs):\n    log_extra('x', iter(int, 1))\n    return [1, 2]\n";
    assert_eq!(
        reasons(endless, 2),
        vec!["log_extra('x') has more than 2 values for 2 completions"; 2]
    );
    let circle = "def reward(completions, log_extra, **kwargs):\n    a = []\n    a.append(a)\n    log_extra('x', a * 2)\n    return [1, 2]\n";
    let (_folder, reward) = python(circle, json!({}));
    assert_eq!(totals(&score(&*reward, &["a", "b"])), [Some(1.0), Some(2.0)]);
}
