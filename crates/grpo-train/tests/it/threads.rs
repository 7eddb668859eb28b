//! Tests that results don't depend on the number of threads. Burn only splits matrix products with
//! at least 192³ multiplications between threads, so this requires a larger model than the other
//! tests.

use burn::tensor::Device;
use grpo_model::Transformer;
use grpo_molecules::MolGptConfig;
use grpo_train::{Metrics, unconditional_prompts};

use crate::support::{SEED, begin, chains, config, parameters, timeless, vocabulary};

#[test]
fn a_step_of_a_wide_model_is_the_same_with_any_number_of_threads() {
    let step = || {
        let vocabulary = vocabulary();
        let wide = MolGptConfig::new(vocabulary.len(), 48, 2, 4, 128).to_config().unwrap();
        // Batches of 64 × 40 tokens result in products of size 2,560 × 128 × 512.
        let model = Transformer::random(&wide, 1, &Device::flex().autodiff()).unwrap();
        let mut config = config();
        config.train.group_size = 64;
        config.sampling.max_new_tokens = 40;
        let boundary = vocabulary.boundary();
        let mut grpo = begin(model, config, SEED, boundary, chains()).unwrap();
        let report = grpo.step(&unconditional_prompts(2, boundary), 0).unwrap();
        (timeless(&Metrics::of(&report, 0)), parameters(grpo.policy()))
    };
    let run = |threads| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(step)
    };
    let one = run(1);
    for threads in [2, 3] {
        assert_eq!(one, run(threads), "{threads} threads");
    }
}
