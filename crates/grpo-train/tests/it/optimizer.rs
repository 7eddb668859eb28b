//! Compares AdamW with its definition in f64, one parameter at a time.

use std::collections::BTreeMap;

use burn::backend::Flex;
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use grpo_model::{Adapted, Adapter, LoraConfig, Policy, Transformer, linear_weights};
use grpo_train::{Decayed, Optimizer, OptimizerConfig, TrainError};

use crate::support::{self, model, optimizer};

/// Factor for the gradient in each step. The values differ so that the moving averages matter.
const STEPS: [f32; 4] = [1.0, -0.5, 2.0, 0.25];
const RATE: f64 = 3e-2;

/// Values by parameter.
type Numbers = BTreeMap<ParamId, Vec<f32>>;

/// Visitor that creates a gradient for each parameter and collects the parameter values.
struct Gradients {
    factor: f32,
    of_step: GradientsParams,
    gradients: Numbers,
    values: Numbers,
}

impl ModuleVisitor for Gradients {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        let place = self.values.len();
        let n = value.shape().num_elements();
        let gradient: Vec<f32> = (0..n)
            .map(|i| self.factor * (((i * 31 + place * 17) % 23) as f32 / 23.0 - 0.4))
            .collect();
        let data = TensorData::new(gradient.clone(), value.shape());
        self.of_step.register::<D>(param.id, Tensor::from_data(data, &Device::flex()));
        self.gradients.insert(param.id, gradient);
        self.values.insert(param.id, value.into_data().iter().collect());
    }
}

fn gradients<M: Module>(model: &M, factor: f32) -> Gradients {
    let of_step = GradientsParams::new();
    let mut gradients =
        Gradients { factor, of_step, gradients: Numbers::new(), values: Numbers::new() };
    model.visit(&mut gradients);
    gradients
}

/// Returns θ after all steps, according to algorithm 2 in Loshchilov & Hutter.
fn adamw(first: f32, gradients: &[f32], decay: f64, config: &OptimizerConfig) -> f64 {
    let [beta_1, beta_2] = config.betas;
    let (mut value, mut m, mut v) = (f64::from(first), 0.0, 0.0);
    for (t, &gradient) in (1..).zip(gradients) {
        let gradient = f64::from(gradient);
        m = beta_1 * m + (1.0 - beta_1) * gradient;
        v = beta_2 * v + (1.0 - beta_2) * gradient * gradient;
        let (m, v) = (m / (1.0 - beta_1.powi(t)), v / (1.0 - beta_2.powi(t)));
        value -= RATE * (m / (v.sqrt() + config.epsilon) + decay * value);
    }
    value
}

/// Performs the steps and compares each parameter with the definition. Returns the number of
/// parameters with weight decay.
fn check<M: Module>(model: M, weight_decay_on: Decayed) -> usize {
    let config = OptimizerConfig {
        weight_decay: 0.5,
        weight_decay_on,
        max_grad_norm: 1e6,
        epsilon: 1e-3,
        ..optimizer()
    };
    let mut optimizer = Optimizer::new(&model, &config);
    let first = gradients(&model, 1.0);
    let linear = linear_weights(&model);
    let mut after = model;
    for factor in STEPS {
        let gradients = gradients(&after, factor).of_step;
        (after, _) = optimizer.step(after, gradients, RATE).unwrap();
    }
    let after = gradients(&after, 1.0).values;
    let mut decayed = 0;
    for (id, values) in &first.values {
        let is_decayed = weight_decay_on == Decayed::All || linear.contains(id);
        decayed += usize::from(is_decayed);
        let decay = if is_decayed { 0.5 } else { 0.0 };
        for ((&value, &gradient), &got) in values.iter().zip(&first.gradients[id]).zip(&after[id]) {
            let of_steps = STEPS.map(|factor| factor * gradient);
            let expected = adamw(value, &of_steps, decay, &config);
            let tolerance = 3e-7 * expected.abs().max(1.0);
            assert!((f64::from(got) - expected).abs() < tolerance, "{got}, expected {expected}");
        }
    }
    decayed
}

/// The two settings only differ in whether weight decay applies to parameters other than linear
/// weights.
#[test]
fn all_parameters_decay_or_the_matrices_of_linear_layers() {
    let model = model(12, 2.0);
    // Each block has 2 norms and 6 linear layers with biases. In addition, there are 3 embeddings,
    // the final norm and the head.
    assert_eq!(check(model.clone(), Decayed::Linear), 6 + 1);
    assert_eq!(check(model.clone(), Decayed::All), 16 + 3 + 2 + 1);
    let config = LoraConfig { rank: 2, alpha: 2.0, ..LoraConfig::default() };
    let device = Device::flex().autodiff();
    let adapter = Adapter::random(&config, &model, 1, &device).unwrap();
    let adapted = Policy::Adapted(Adapted::new(&model, adapter));
    for on in [Decayed::Linear, Decayed::All] {
        assert_eq!(check(adapted.clone(), on), 2 * 6);
    }
}

/// Performs a single step without weight decay. Returns the parameter values or an error.
fn one_step<M: Module>(
    model: M,
    gradients: GradientsParams,
    max_grad_norm: f64,
) -> Result<(Numbers, f64), TrainError> {
    let config = OptimizerConfig { max_grad_norm, epsilon: 1e-3, ..optimizer() };
    let (after, norm) = Optimizer::new(&model, &config).step(model, gradients, RATE)?;
    Ok((self::gradients(&after, 1.0).values, norm))
}

#[test]
fn the_norm_is_of_all_gradients_together_and_the_direction_stays() {
    let model = model(12, 2.0);
    let whole = gradients(&model, 1.0);
    let squares = whole.gradients.values().flatten().map(|&g| f64::from(g).powi(2));
    let expected = squares.sum::<f64>().sqrt();
    let (unclipped, norm) = one_step(model.clone(), whole.of_step, f64::MAX).unwrap();
    assert!((norm - expected).abs() < 1e-13 * expected, "{norm}, expected {expected}");

    let at_the_limit = one_step(model.clone(), gradients(&model, 1.0).of_step, norm).unwrap();
    assert_eq!(at_the_limit, (unclipped.clone(), norm));
    // A power of two, so that clipping is exactly equivalent to using smaller gradients.
    let clipped = one_step(model.clone(), gradients(&model, 1.0).of_step, 0.25 * norm).unwrap();
    assert_eq!(clipped.1, norm);
    let quarter = one_step(model.clone(), gradients(&model, 0.25).of_step, f64::MAX).unwrap();
    assert_eq!(quarter.1, 0.25 * norm);
    assert_eq!(clipped.0, quarter.0);
    assert_ne!(clipped.0, unclipped);
}

#[test]
fn the_norm_is_limited_to_one_by_default() {
    let config: OptimizerConfig = toml::from_str("learning_rate = 1e-3").unwrap();
    assert_eq!(config.max_grad_norm, 1.0);
}

#[test]
fn a_non_finite_norm_changes_no_weights_or_moments() {
    let model = model(12, 2.0);
    let before = gradients(&model, 1.0).values;
    let mut optimizer = Optimizer::new(&model, &optimizer());
    for factor in [f32::NAN, f32::INFINITY] {
        let refused = optimizer.step(model.clone(), gradients(&model, factor).of_step, RATE);
        let is_of_the_norm =
            matches!(refused, Err(TrainError::Diverged { what: "gradient norm", .. }));
        assert!(is_of_the_norm);
    }
    assert_eq!(gradients(&model, 1.0).values, before);
    let fresh = Optimizer::new(&model, &support::optimizer());
    let [after, expected] = [optimizer, fresh].map(|mut optimizer| {
        let of_step = gradients(&model, 1.0).of_step;
        gradients(&optimizer.step(model.clone(), of_step, RATE).unwrap().0, 1.0).values
    });
    assert_eq!(after, expected);
}

/// Without a gradient, there is no weight decay and the step is not counted. The bias correction
/// starts with the first gradient.
#[test]
fn a_parameter_without_a_gradient_does_not_change() {
    let model = model(12, 2.0);
    let config = OptimizerConfig { weight_decay: 0.5, ..optimizer() };
    let all = gradients(&model, 1.0);
    let (&left_out, values) = all.values.iter().find(|(_, values)| values.len() > 1000).unwrap();
    let mut optimizer = Optimizer::new(&model, &config);
    let mut without = gradients(&model, 1.0).of_step;
    without.remove::<2>(left_out).unwrap();
    let (after, _) = optimizer.step(model.clone(), without, RATE).unwrap();
    assert_eq!(&gradients(&after, 1.0).values[&left_out], values);

    let (after, _) = optimizer.step(after, gradients(&model, 1.0).of_step, RATE).unwrap();
    let mut fresh = Optimizer::new(&model, &config);
    let (expected, _) = fresh.step(model.clone(), gradients(&model, 1.0).of_step, RATE).unwrap();
    let [after, expected] = [after, expected].map(|model| gradients(&model, 1.0).values);
    // The norm includes an additional gradient.
    assert_eq!(after[&left_out], expected[&left_out]);
    assert_ne!(after, expected);
}

/// Memory address of each parameter's data.
#[derive(Default)]
struct Storages(BTreeMap<ParamId, usize>);

impl ModuleVisitor for Storages {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val().inner().try_into_primitive::<Flex>().unwrap();
        self.0.insert(param.id, value.bytes().as_ptr().addr());
    }
}

#[test]
fn weights_change_in_place_where_nobody_else_holds_them() {
    let storages = |model: &Transformer| {
        let mut storages = Storages::default();
        model.visit(&mut storages);
        storages.0
    };
    let model = model(12, 2.0);
    let mut optimizer = Optimizer::new(&model, &optimizer());
    let (before, of_step) = (storages(&model), gradients(&model, 1.0).of_step);
    let (model, _) = optimizer.step(model, of_step, RATE).unwrap();
    assert_eq!(storages(&model), before);

    let held = model.clone();
    let values = gradients(&held, 1.0).values;
    let of_step = gradients(&model, 1.0).of_step;
    let (model, _) = optimizer.step(model, of_step, RATE).unwrap();
    assert!(storages(&model).iter().all(|(id, place)| before[id] != *place));
    assert_eq!(gradients(&held, 1.0).values, values);
}
