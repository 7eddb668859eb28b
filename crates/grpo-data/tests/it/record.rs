use grpo_data::TokenSet;
use grpo_data::{
    Completion, CompletionParts, CounterRng, Finish, Prompt, Purpose, SampleKey, SampledUnder,
};

fn parts() -> CompletionParts {
    CompletionParts {
        prefix: Default::default(),
        ids: vec![0, 5, 6, 0],
        action_mask: vec![false, true, true, true],
        sampling_logprobs: Some(vec![-0.5, -1.25, 0.0]),
        finish: Finish::EndToken,
        key: SampleKey { seed: 1, step: 2, prompt: 3, sample: 4 },
        policy_version: 7,
        sampled_under: SampledUnder::default(),
    }
}

/// Returns the message with which [`Completion::new`] would panic.
fn fault(change: impl FnOnce(&mut CompletionParts)) -> String {
    let mut parts = parts();
    change(&mut parts);
    Completion::try_from(parts).unwrap_err()
}

#[test]
fn a_completion_returns_its_parts() {
    let completion = Completion::new(parts());
    assert_eq!(completion.ids(), [0, 5, 6, 0]);
    assert_eq!(completion.action_mask(), [false, true, true, true]);
    assert_eq!(completion.action_ids().collect::<Vec<_>>(), [5, 6, 0]);
    assert_eq!(completion.sampling_logprobs().unwrap(), [-0.5, -1.25, 0.0]);
    assert_eq!(completion.actions(), 3);
    assert_eq!(completion.finish(), Finish::EndToken);
    assert_eq!(completion.policy_version(), 7);
    assert_eq!(completion.key(), parts().key);
    assert_eq!(completion.sampled_under(), &SampledUnder::default());
    assert_eq!(CompletionParts::from(completion), parts());
}

#[test]
fn actions_need_not_be_a_suffix() {
    let completion = Completion::new(CompletionParts {
        prefix: Default::default(),
        ids: vec![9, 5, 6, 8],
        action_mask: vec![true, false, false, true],
        sampling_logprobs: Some(vec![-1.0, -2.0]),
        ..parts()
    });
    assert_eq!(completion.action_ids().collect::<Vec<_>>(), [9, 8]);
}

#[test]
fn parts_that_contradict_each_other_are_refused() {
    assert_eq!(
        fault(|parts| parts.ids.push(1)),
        "a completion of 5 tokens has an action mask of 4"
    );
    assert_eq!(
        fault(|parts| parts.action_mask = vec![false; 4]),
        "a completion of 4 tokens has no action"
    );
    assert_eq!(
        fault(|parts| parts.action_mask[1] = false),
        "a completion of 2 actions has 3 log-probabilities"
    );
    for wrong in [f32::NAN, f32::NEG_INFINITY, 0.1] {
        assert_eq!(
            fault(|parts| parts.sampling_logprobs.as_mut().unwrap()[1] = wrong),
            format!("a sampling log-probability is {wrong}; expected a finite number of at most 0")
        );
    }
    for wrong in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert_eq!(
            fault(|parts| parts.sampled_under.temperature = wrong),
            format!(
                "a completion was sampled at temperature {wrong}; expected a finite number above 0"
            )
        );
    }
    for wrong in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert_eq!(
            fault(|parts| parts.sampled_under.repetition_penalty = wrong),
            format!(
                "a completion was sampled with a repetition penalty of {wrong}; expected a finite number above 0"
            )
        );
    }
    assert_eq!(
        fault(|parts| parts.sampled_under.forbidden = vec![3, 6]),
        "a completion has the action 6, which was forbidden"
    );
    let kept = |sets: &[&[u32]]| {
        Some(sets.iter().map(|ids| TokenSet::from_sorted(ids, 9).unwrap()).collect())
    };
    assert_eq!(
        fault(|parts| parts.sampled_under.kept = kept(&[&[5], &[6]])),
        "a completion of 3 actions has 2 kept sets"
    );
    assert_eq!(
        fault(|parts| parts.sampled_under.kept = kept(&[&[5], &[6], &[6, 8]])),
        "a completion has the action 0, which is not in its kept set"
    );
    // A forbidden id in the prompt is valid, because it is not an action.
    let mut parts = parts();
    parts.action_mask[3] = false;
    parts.sampling_logprobs.as_mut().unwrap().pop();
    parts.sampled_under.forbidden = vec![0];
    parts.sampled_under.kept = kept(&[&[5], &[1, 6]]);
    assert!(Completion::try_from(parts).is_ok());
}

#[test]
#[should_panic(expected = "a completion of 5 tokens has an action mask of 4")]
fn making_one_of_them_panics() {
    let mut parts = parts();
    parts.ids.push(1);
    Completion::new(parts);
}

#[test]
fn prompts_and_completions_survive_json_and_a_damaged_one_does_not_load() {
    let mut prompt = Prompt::of_ids(3, vec![0]);
    prompt.fields.insert("answer".to_owned(), "42".into());
    let mut parts = parts();
    parts.sampled_under = SampledUnder {
        temperature: 0.7,
        repetition_penalty: 1.1,
        forbidden: vec![1],
        kept: Some(vec![
            TokenSet::all(9),
            TokenSet::from_sorted(&[6], 9).unwrap(),
            TokenSet::all(9),
        ]),
        mask_id: None,
    };
    let both = (prompt, Completion::new(parts));
    let json = serde_json::to_string(&both).unwrap();
    assert_eq!(serde_json::from_str::<(Prompt, Completion)>(&json).unwrap(), both);
    let damaged = json.replace("-1.25", "1.25");
    let error = serde_json::from_str::<(Prompt, Completion)>(&damaged).unwrap_err().to_string();
    assert!(error.contains("a sampling log-probability is 1.25"), "{error}");
}

#[test]
fn each_coordinate_has_a_random_number_of_its_own() {
    let key = parts().key;
    let base = key.uniform(Purpose::SAMPLING, 0);
    let rng = CounterRng::new(1, Purpose::SAMPLING);
    assert_eq!(base, rng.uniform(key.counter(0)));
    for other in [
        SampleKey { seed: 9, ..key },
        SampleKey { step: 9, ..key },
        SampleKey { prompt: 9, ..key },
        SampleKey { sample: 9, ..key },
    ] {
        assert_ne!(base, other.uniform(Purpose::SAMPLING, 0));
    }
    assert_ne!(base, key.uniform(Purpose::SAMPLING, 1));
    assert_ne!(base, key.uniform(Purpose::EVALUATION, 0));
}
