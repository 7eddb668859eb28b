//! Log-probabilities and entropies.

use burn::tensor::{DType, Device, Tensor, TensorData};
use grpo_logprob::{Head, Scores, Targets, exact_kl, score, score_logits};

use crate::oracle;
use crate::scene::{Scene, Under, all_distributions, host};

#[track_caller]
fn close(got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    let largest = expected.iter().fold(1.0_f64, |largest, e| largest.max(e.abs()));
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let difference = (got - expected).abs();
        assert!(difference <= tolerance * largest, "{i}: {got}, expected {expected}");
    }
}

/// Both paths against the definition.
#[track_caller]
fn check(scene: &Scene, device: &Device, dtype: DType, tolerance: f64) {
    let n = scene.sizes[0];
    let expected: Vec<[f64; 2]> = (0..n).map(|i| oracle::score(scene, i)).collect();
    let [logprobs, entropies] = [0, 1].map(|c| expected.iter().map(|e| e[c]).collect::<Vec<_>>());
    let targets = scene.targets();
    for tied in [false, true] {
        let (hidden, mut head) = (scene.hidden(device, dtype), scene.head(device, dtype, tied));
        if tied {
            head.weight = head.weight.transpose();
        }
        let logits = head.logits(hidden.clone());
        for scores in [score(hidden, &head, &targets), score_logits(logits, &targets)] {
            let Scores { logprobs: got, entropies: got_entropies } = scores;
            close(&host(got), &logprobs, tolerance);
            close(&host(got_entropies), &entropies, tolerance);
        }
    }
}

#[test]
fn both_paths_equal_the_definition() {
    for under in all_distributions() {
        for bias in [false, true] {
            let scene = Scene::new([7, 5, 37], under, bias);
            check(&scene, &Device::flex(), DType::F32, 2e-6);
            check(&scene, &Device::flex(), DType::F64, 1e-13);
            check(&scene, &Device::flex().autodiff(), DType::F32, 2e-6);
        }
    }
}

/// More positions and more ids than a tile holds.
#[test]
fn tiles_make_no_difference() {
    let under =
        Under { temperature: Some(0.9), forbidding: true, truncated: true, penalty: Some(1.2) };
    for under in [Under::default(), under] {
        let scene = Scene::new([2060, 4, 4200], under, false);
        check(&scene, &Device::flex(), DType::F32, 4e-6);
    }
}

/// Large logits: in f32 only differences to the largest one may be exponentiated.
#[test]
fn large_logits_do_not_overflow() {
    let mut scene = Scene::new([6, 4, 50], Under::default(), false);
    scene.hidden.iter_mut().for_each(|h| *h *= 400.0);
    check(&scene, &Device::flex(), DType::F64, 1e-12);
    // A logit of 3,000 is known to 2e-4 in f32.
    check(&scene, &Device::flex(), DType::F32, 1e-3);
}

#[test]
fn a_diverged_model_is_not_hidden() {
    let mut scene = Scene::new([3, 4, 50], Under::default(), false);
    scene.hidden[4] = f64::NAN;
    let device = Device::flex();
    let (hidden, head) =
        (scene.hidden(&device, DType::F32), scene.head(&device, DType::F32, false));
    let scores = score(hidden, &head, &scene.targets());
    let nan: Vec<bool> = host(scores.logprobs).into_iter().map(f64::is_nan).collect();
    assert_eq!(nan, [false, true, false]);
    let nan: Vec<bool> = host(scores.entropies).into_iter().map(f64::is_nan).collect();
    assert_eq!(nan, [false, true, false]);
}

#[test]
fn an_id_that_could_not_be_drawn_is_all_but_impossible() {
    let device = Device::flex();
    let targets = Targets::new(vec![2, 1], 3).without(&[2]);
    let head = Head::new(Tensor::from_data([[1.0, 2.0, 3.0]], &device));
    let hidden: Tensor<2> = Tensor::from_data([[1.0], [1.0]], &device);
    for scores in
        [score(hidden.clone(), &head, &targets), score_logits(head.logits(hidden), &targets)]
    {
        let logprobs = host(scores.logprobs);
        assert!(logprobs[0] < -9e29 && logprobs[0].is_finite(), "{logprobs:?}");
        assert!((logprobs[1] - -(1.0 + (-1.0_f64).exp()).ln()).abs() < 1e-6);
    }
}

#[test]
fn exact_kl_equals_the_definition() {
    let device = Device::flex();
    for under in all_distributions() {
        let (scene, mut reference) =
            (Scene::new([5, 4, 19], under, false), Scene::new([5, 4, 19], under, false));
        reference.hidden.iter_mut().for_each(|h| *h = f64::from((*h * 0.5 + 0.1) as f32));
        let policy_of = |scene: &Scene, i: usize| -> Vec<f64> {
            (0..19).map(|v| oracle_probability(scene, i, v)).collect()
        };
        let expected: Vec<f64> = (0..5)
            .map(|i| {
                let pairs = policy_of(&scene, i).into_iter().zip(policy_of(&reference, i));
                pairs.filter(|(p, _)| *p > 0.0).map(|(p, q)| p * (p / q).ln()).sum()
            })
            .collect();
        let logits = |scene: &Scene| {
            let logits: Vec<f64> = (0..5).flat_map(|i| scene.logits(i)).collect();
            Tensor::<2>::from_data(TensorData::new(logits, [5, 19]), (&device, DType::F64))
        };
        let got = exact_kl(logits(&scene), logits(&reference), &scene.targets());
        close(&host(got), &expected, 1e-13);
        let same = exact_kl(logits(&scene), logits(&scene), &scene.targets());
        assert!(host(same).iter().all(|&kl| kl == 0.0));
    }
}

/// Probability of `v` at position `i`; 0 where it could not be drawn.
fn oracle_probability(scene: &Scene, i: usize, v: u32) -> f64 {
    let drawable = !scene.forbidden.contains(&v)
        && scene.kept.as_ref().is_none_or(|kept| kept[i].binary_search(&v).is_ok());
    if !drawable {
        return 0.0;
    }
    let mut at = scene.clone();
    at.ids[i] = v;
    oracle::score(&at, i)[0].exp()
}
