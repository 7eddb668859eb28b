//! Activation checkpointing per block (Chen et al. 2016, "Training Deep Nets with Sublinear Memory
//! Cost").
//!
//! The forward pass runs without autodiff and keeps only the input of each block. The backward pass
//! starts at the last block. It recomputes one block at a time with autodiff, and passes the
//! gradient with respect to its input on to the previous block.
//!
//! Burn's built-in strategy recomputes individual memory-bound operations. The implementation here
//! recomputes entire blocks, so only the activations of a single block are in memory at a time.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Gradients, Tensor};

use crate::language_model::{Forward, LanguageModel};
use crate::pass::{Pass, PassContext};
use crate::residual::Residual;
use crate::{Adapter, Dropout, Policy, TokenBatch};

/// The state needed to recompute a block.
struct Kept {
    /// The block's input, detached from autodiff.
    input: Tensor<2>,
    /// Dropout state before the block ran.
    dropout: Dropout,
}

pub(crate) fn forward(
    policy: &Policy,
    tokens: &TokenBatch,
    dropout: &mut Dropout,
) -> Forward<Policy> {
    let at_start = dropout.clone();
    let off_tape = policy.valid();
    let (model, adapter) = off_tape.effective();
    let device = model.device();
    let (mut x, context) = model.begin(tokens, None, adapter, dropout, &device);
    let mut kept = Vec::new();
    for layer in 0..model.description().layers {
        kept.push(Kept { input: x.clone(), dropout: dropout.clone() });
        let mut pass = Pass::new(context.clone(), adapter, dropout);
        x = model.block(layer, x, &mut pass);
    }
    let output = Tensor::from_inner(x).require_grad();
    let hidden = policy.effective().0.end(Residual::new(output.clone()), &context);
    let tokens = tokens.clone();
    let back = move |policy: &Policy, last: &Gradients| {
        let gradient = output.grad(last).expect("the loss depends on the hidden states");
        backward(policy, &tokens, at_start, kept, &context, gradient)
    };
    Forward::recomputed(hidden, Box::new(back))
}

/// Backpropagates the gradient of the last block's output through the blocks and the embeddings.
fn backward(
    policy: &Policy,
    tokens: &TokenBatch,
    mut at_start: Dropout,
    kept: Vec<Kept>,
    context: &PassContext,
    mut gradient: Tensor<2>,
) -> Vec<GradientsParams> {
    let (model, adapter) = policy.effective();
    let mut parts = Vec::new();
    for (layer, Kept { input, mut dropout }) in kept.into_iter().enumerate().rev() {
        let input = Tensor::from_inner(input).require_grad();
        let mut pass = Pass::new(context.clone(), adapter, &mut dropout);
        let output = model.block(layer, input.clone(), &mut pass);
        let gradients = (output * Tensor::from_inner(gradient)).sum().backward();
        gradient = input.grad(&gradients).expect("a block's output depends on its input");
        parts.push(GradientsParams::from_grads(gradients, policy));
    }
    if adapter.is_none_or(Adapter::changes_input) {
        let device = policy.device();
        let (embedded, _) = model.begin(tokens, None, adapter, &mut at_start, &device);
        let gradients = (embedded * Tensor::from_inner(gradient)).sum().backward();
        parts.push(GradientsParams::from_grads(gradients, policy));
    }
    parts
}
