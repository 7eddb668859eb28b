//! Draws from softmax distributions on a GPU. On the CPU, there is nothing to test.

use grpo_kernels::{Penalty, Scaling, Truncation, draw_on_gpu, is_cpu, likely_on_gpu};

use crate::support::{device, tensor, values};

const PLAIN: Scaling<'_> = Scaling { penalty: None, forbidden: &[], temperature: 1.0 };

/// Returns the drawn id and its log-probability, computed in f64.
fn oracle(logits: &[f64], uniform: f64, temperature: f64, forbidden: &[u32]) -> (u32, f64) {
    let possible = (0u32..).zip(logits).filter(|(id, _)| !forbidden.contains(id));
    let scaled: Vec<(u32, f64)> = possible.map(|(id, x)| (id, x / temperature)).collect();
    let total: f64 = scaled.iter().map(|(_, x)| x.exp()).sum();
    let mut before = 0.0;
    for &(id, x) in &scaled {
        before += x.exp() / total;
        if uniform < before {
            return (id, x - total.ln());
        }
    }
    panic!("{uniform} is below 1");
}

/// Vocabularies with fewer ids than units, with as many, and with a last segment that is not full.
#[test]
fn draws_are_those_of_the_definition() {
    for (vocabulary, temperature, forbidden) in
        [(1, 1.0, vec![]), (5, 0.7, vec![0, 3]), (128, 1.0, vec![]), (1000, 1.5, vec![999, 1])]
    {
        let rows = 40;
        let logits = values(rows * vocabulary, 11);
        let uniforms: Vec<f64> = values(rows, 12).iter().map(|v| v / 6.0 + 0.5).collect();
        let input = tensor(&logits, [rows, vocabulary], &device());
        let scaling = Scaling { forbidden: &forbidden, temperature, ..PLAIN };
        let Some(drawn) = draw_on_gpu(&input, &scaling, &uniforms) else {
            assert!(is_cpu(&device()), "the logits are on a GPU");
            return;
        };
        for ((logits, &uniform), drawn) in logits.chunks(vocabulary).zip(&uniforms).zip(drawn) {
            let (id, logprob) = oracle(logits, uniform, temperature.into(), &forbidden);
            let (drawn, of_drawn) = drawn.unwrap();
            assert_eq!(drawn, id, "{uniform} of {vocabulary}");
            assert!((f64::from(of_drawn) - logprob).abs() < 5e-6, "{of_drawn}, expected {logprob}");
        }
    }
}

#[test]
fn distributions_that_are_not_finite() {
    for logits in [[f64::NAN, 0.0], [f64::INFINITY, 0.0], [f64::NEG_INFINITY; 2]] {
        let input = tensor(&logits, [1, 2], &device());
        let drawn = draw_on_gpu(&input, &PLAIN, &[0.5]);
        assert!(drawn.is_none_or(|drawn| drawn == [None]), "{logits:?}");
    }
    // An id with probability 0 is not drawn.
    let input = tensor(&[f64::NEG_INFINITY, 1.0], [1, 2], &device());
    if let Some(drawn) = draw_on_gpu(&input, &PLAIN, &[0.0]) {
        assert_eq!(drawn, [Some((1, 0.0))]);
    }
}

/// Detects a penalty that is applied twice, in another row, or to another id: a draw from one possible id
/// has the log-probability of that id, and candidates have their penalised logits.
#[test]
fn seen_ids_are_penalised_once() {
    for (vocabulary, factor) in [(1, 2.0), (5, 0.5), (128, 1.3), (3000, 1.3)] {
        let (rows, last) = (4, vocabulary as u32 - 1);
        let logits: Vec<f64> =
            values(rows * vocabulary, 31).iter().map(|&x| f64::from(2.0 * x as f32)).collect();
        let input = tensor(&logits, [rows, vocabulary], &device());
        let all: Vec<u32> = (0..=last).collect();
        let seen: [&[u32]; 4] = [&[last, 0, last], &[], &all, &[last / 2]];
        let scaling = Scaling { penalty: Some(Penalty { seen: &seen, factor }), ..PLAIN };
        let factor = f64::from(factor);
        let penalised: Vec<f64> = logits
            .iter()
            .enumerate()
            .map(|(at, &logit)| match seen[at / vocabulary].contains(&((at % vocabulary) as u32)) {
                true if logit > 0.0 => logit / factor,
                true => logit * factor,
                false => logit,
            })
            .collect();
        let of_row = |row: usize| &penalised[row * vocabulary..][..vocabulary];
        for uniform in [0.01, 0.4, 0.8, 0.99] {
            let Some(drawn) = draw_on_gpu(&input, &scaling, &[uniform; 4]) else {
                assert!(is_cpu(&device()), "the logits are on a GPU");
                return;
            };
            for (row, drawn) in drawn.into_iter().enumerate() {
                let (id, logprob) = oracle(of_row(row), uniform, 1.0, &[]);
                let (found, of_found) = drawn.unwrap();
                assert_eq!(found, id, "row {row} of {vocabulary}");
                assert!((f64::from(of_found) - logprob).abs() < 5e-6, "{of_found}, {logprob}");
            }
        }
        let wide = Truncation { gap: Some(8.0), ..Truncation::default() };
        let found = likely_on_gpu(&input, &scaling, wide);
        assert_eq!(found.is_some(), vocabulary == 3000);
        for (row, found) in found.into_iter().flatten().enumerate() {
            for (id, logit) in found.map_or_else(Vec::new, |found| found.candidates) {
                let expected = of_row(row)[id as usize];
                // Two roundings: of 1/factor and of the product.
                assert!((f64::from(logit) - expected).abs() <= 1.2e-7 * expected.abs());
            }
        }
    }
}

/// The candidates must be the most probable ids, enough of them, and not many more.
#[test]
fn candidates_of_truncated_distributions() {
    let (rows, vocabulary, temperature, forbidden) = (10, 4000, 0.7f32, [3, 3999]);
    let logits: Vec<f64> = values(rows * vocabulary, 21).iter().map(|x| 3.0 * x).collect();
    let input = tensor(&logits, [rows, vocabulary], &device());
    let none = Truncation::default();
    for truncation in [
        Truncation { ids: Some(1), ..none },
        Truncation { ids: Some(40), ..none },
        Truncation { mass: Some(0.6), ..none },
        Truncation { mass: Some(0.99), ..none },
        Truncation { gap: Some(3.0), ..none },
    ] {
        let scaling = Scaling { forbidden: &forbidden, temperature, ..PLAIN };
        let Some(found) = likely_on_gpu(&input, &scaling, truncation) else {
            assert!(is_cpu(&device()), "the logits are on a GPU");
            return;
        };
        assert_eq!(found.len(), rows);
        for (logits, found) in logits.chunks(vocabulary).zip(found) {
            let found = found.unwrap();
            let scaled = |id: u32| logits[id as usize] / f64::from(temperature);
            let mut order: Vec<u32> =
                (0..vocabulary as u32).filter(|id| !forbidden.contains(id)).collect();
            order.sort_by(|&a, &b| scaled(b).total_cmp(&scaled(a)));
            let largest = scaled(order[0]);
            let weight = |id: u32| (scaled(id) - largest).exp();
            let total: f64 = order.iter().map(|&id| weight(id)).sum();
            assert!((found.total - total).abs() < 1e-5 * total);
            let ids: Vec<u32> = found.candidates.iter().map(|&(id, _)| id).collect();
            assert!(ids.is_sorted());
            let mut best = order[..ids.len()].to_vec();
            best.sort_unstable();
            assert_eq!(ids, best, "{truncation:?}");
            for &(id, logit) in &found.candidates {
                assert_eq!(f64::from(logit), f64::from(logits[id as usize] as f32));
            }
            let mass = |ids: &[u32]| ids.iter().map(|&id| weight(id)).sum::<f64>() / total;
            assert!(ids.len() >= truncation.ids.unwrap_or(1));
            assert!(mass(&ids) >= f64::from(truncation.mass.unwrap_or(0.0)) - 1e-6);
            let lowest = scaled(order[ids.len() - 1]);
            // One step is 1.25 nats, and the highest of these levels is not needed.
            let fewer: Vec<u32> = order
                .iter()
                .copied()
                .take_while(|&id| largest - scaled(id) <= largest - lowest - 1.25)
                .collect();
            let is_enough = fewer.len() >= truncation.ids.unwrap_or(1)
                && mass(&fewer) >= f64::from(truncation.mass.unwrap_or(0.0)) + 1e-6
                && largest - lowest - 1.25 >= f64::from(truncation.gap.unwrap_or(0.0)) + 1e-6;
            assert!(!is_enough || largest - lowest <= 1.25, "{truncation:?} has too many");
        }
    }
}

/// Where there are too many candidates or none are defined, the host has to read all logits.
#[test]
fn rows_without_candidates() {
    let nucleus = Truncation { mass: Some(0.9), ..Truncation::default() };
    for (first, others) in
        [(0.0, 0.0), (f64::NAN, 0.0), (f64::INFINITY, 0.0), (f64::NEG_INFINITY, f64::NEG_INFINITY)]
    {
        let mut logits = vec![others; 4000];
        logits[0] = first;
        let input = tensor(&logits, [1, logits.len()], &device());
        let found = likely_on_gpu(&input, &PLAIN, nucleus);
        assert!(found.is_none_or(|found| found == [None]), "{first} {others}");
    }
}
