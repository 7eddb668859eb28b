//! Token classifiers: comparison with plain f64 loops, training, and model files.

use burn::module::Module;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::Device;
use grpo_data::Codec;
use grpo_infill::{InfillerConfig, TokenClassifier};
use grpo_model::{Dropout, LanguageModel, ModelSpec, StoredAs, TokenBatch, Transformer};

use crate::sizes::characters;
use crate::support::{assert_close, device, host, named_tensors, shaken};

const ROWS: [&[u32]; 3] = [&[3, 8, 0, 7, 7], &[1], &[6, 5, 9, 1]];

fn sizes() -> InfillerConfig {
    InfillerConfig { classes: Some(3), ..InfillerConfig::new(12, 16, 2, 2, 16) }
}

fn classifier(device: &Device) -> TokenClassifier {
    let config = sizes().token_classifier().unwrap();
    TokenClassifier::new(shaken(&config, 1, device)).unwrap()
}

/// Labels of the tokens in [`ROWS`]. Two have none.
fn labels() -> Vec<Option<u32>> {
    vec![Some(0), Some(2), None, Some(1), Some(1), Some(2), Some(0), None, Some(1), Some(2)]
}

#[test]
fn logits_and_loss_are_those_of_the_definition() {
    let classifier = classifier(&device());
    let batch = TokenBatch::from_iter(ROWS);
    let hidden = host(classifier.model().hidden(&batch, &mut Dropout::off()));
    let tensors = named_tensors(classifier.model());
    let values = |name: &str| -> Vec<f64> { tensors[name].iter().collect() };
    let (weight, bias) = (values("classifier.weight"), values("classifier.bias"));
    let expected: Vec<Vec<f64>> = hidden
        .chunks(16)
        .map(|hidden| {
            let logit = |class: usize| {
                let row = &weight[class * 16..][..16];
                bias[class] + row.iter().zip(hidden).map(|(w, h)| w * h).sum::<f64>()
            };
            (0..3).map(logit).collect()
        })
        .collect();
    let got = host(classifier.logits(&batch, &mut Dropout::off()));
    assert_close(&got, &expected.concat(), 1e-5);

    let loss = |(logits, label): (&Vec<f64>, Option<u32>)| {
        let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
        label.map(|label| total.ln() - logits[label as usize])
    };
    let losses: Vec<f64> = expected.iter().zip(labels()).filter_map(loss).collect();
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    let got = classifier.cross_entropy(&batch, &labels(), &mut Dropout::off()).unwrap();
    assert_close(&host(got), &[mean], 1e-6);
}

/// Tokens are classified by their left neighbour, which a model without attention cannot do.
#[test]
fn learns_a_rule_of_the_context() {
    let config = sizes().token_classifier().unwrap();
    let device = device().autodiff();
    let mut classifier =
        TokenClassifier::new(Transformer::random(&config, 1, &device).unwrap()).unwrap();
    let texts: Vec<Vec<u32>> =
        (0..24).map(|t| (0..8).map(|i| (t * 5 + i * i * 3 + t * i) % 9).collect()).collect();
    let batch: TokenBatch = texts.iter().map(Vec::as_slice).collect();
    let labels: Vec<Option<u32>> = texts
        .iter()
        .flat_map(|text| (0..text.len()).map(|i| (i > 0).then(|| text[i - 1] % 3)))
        .collect();
    let loss = |of: &TokenClassifier| {
        host(of.cross_entropy(&batch, &labels, &mut Dropout::off()).unwrap())[0]
    };
    let before = loss(&classifier);
    let mut adam = AdamConfig::new().init();
    for _ in 0..120 {
        let loss = classifier.cross_entropy(&batch, &labels, &mut Dropout::off()).unwrap();
        let gradients = GradientsParams::from_grads(loss.backward(), &classifier);
        classifier = adam.step(5e-3, classifier, gradients);
    }
    let (after, logits) =
        (loss(&classifier), host(classifier.valid().logits(&batch, &mut Dropout::off())));
    assert!(before > 1.0 && after < 0.1, "{before} {after}");
    let best = |row: &[f64]| (0..3).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32;
    let right = logits.chunks(3).zip(&labels).filter(|(row, label)| **label == Some(best(row)));
    assert!(right.count() >= 24 * 7 - 2);
}

#[test]
fn is_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let config = sizes().token_classifier().unwrap();
    let model = shaken(&config, 1, &device());
    let codec = Codec::from_text_codec(characters(&config));
    let spec = ModelSpec { config: config.clone(), codec };
    spec.write(folder.path(), &model, StoredAs::F32).unwrap();
    let (read, classifier) = TokenClassifier::load(folder.path(), &device()).unwrap();
    assert_eq!((read.config.json(), classifier.classes()), (config.json(), 3));
    let batch = TokenBatch::from_iter(ROWS);
    let logits = |of: &TokenClassifier| host(of.logits(&batch, &mut Dropout::off()));
    assert_eq!(logits(&classifier), logits(&TokenClassifier::new(model).unwrap()));
}

#[test]
fn what_does_not_fit_is_refused() {
    let classifier = classifier(&device());
    let batch = TokenBatch::from_iter(ROWS);
    let refused = |labels: &[Option<u32>]| {
        classifier.cross_entropy(&batch, labels, &mut Dropout::off()).unwrap_err().to_string()
    };
    assert_eq!(refused(&labels()[1..]), "expected 10 labels, one per token, found 9");
    assert_eq!(refused(&[None; 10]), "no token has a label, so there is no cross-entropy");
    let mut wrong = labels();
    wrong[3] = Some(3);
    assert_eq!(refused(&wrong), "the label of token 3 is 3; expected a class from 0 to 2");
    let plain = InfillerConfig { classes: None, ..sizes() };
    let missing = plain.token_classifier().unwrap_err().to_string();
    assert!(missing.contains("classes is missing; expected 2 to 1000000"), "{missing}");
    let infiller = sizes().infiller().unwrap_err().to_string();
    assert!(infiller.contains("classes is not valid for infiller; remove it"), "{infiller}");
    let infiller = plain.infiller().unwrap();
    assert!(TokenClassifier::new(shaken(&infiller, 1, &device())).is_err());
}
