//! Compares a cache after arbitrary sequences of operations with separately stored sequences.

use std::collections::BTreeSet;

use grpo_kernels::PAGE;
use grpo_model::{CacheSlot, Frozen, KvCache, TokenBatch, Transformer};
use proptest::prelude::*;
use serde_json::json;

use crate::configs::{config, llama, other, with};
use crate::support::{assert_same, device, host, shaken};

/// A cache operation. Indices are taken modulo the number of open sequences.
#[derive(Clone, Debug)]
enum Step {
    Open,
    Fork(usize),
    Close(usize),
    /// Extends all sequences whose index has its bit set. The number of tokens differs between
    /// them.
    Extend(u8, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => Just(Step::Open),
        3 => (0..8_usize).prop_map(Step::Fork),
        2 => (0..8_usize).prop_map(Step::Close),
        5 => (1..=255_u8, 1..9_usize).prop_map(|(which, tokens)| Step::Extend(which, tokens)),
        1 => (1..=255_u8).prop_map(|which| Step::Extend(which, PAGE)),
    ];
    proptest::collection::vec(step, 1..40)
}

/// A sequence, with a label for each of its pages.
struct Kept {
    slot: CacheSlot,
    ids: Vec<u32>,
    pages: Vec<usize>,
}

/// A simple model of the cache.
#[derive(Default)]
struct Simple {
    sequences: Vec<Kept>,
    /// Label of the next page.
    name: usize,
    /// Maximum number of pages in use at the same time.
    most: usize,
    next_id: u32,
}

const MOST: usize = 60;

impl Simple {
    fn new_page(&mut self) -> usize {
        self.name += 1;
        self.name
    }

    fn count_pages(&mut self) {
        let pages: BTreeSet<usize> =
            self.sequences.iter().flat_map(|kept| kept.pages.iter().copied()).collect();
        self.most = self.most.max(pages.len());
    }

    fn take(&mut self, model: &Frozen<Transformer>, cache: &mut KvCache, step: &Step) {
        let count = self.sequences.len();
        match *step {
            Step::Open => {
                let slot = cache.open();
                self.sequences.push(Kept { slot, ids: vec![], pages: vec![] });
            }
            Step::Fork(which) if count > 0 => {
                let Kept { slot, ids, mut pages } = {
                    let kept = &self.sequences[which % count];
                    Kept { slot: kept.slot, ids: kept.ids.clone(), pages: kept.pages.clone() }
                };
                if !ids.len().is_multiple_of(PAGE) {
                    *pages.last_mut().unwrap() = self.new_page();
                }
                self.sequences.push(Kept { slot: cache.fork(slot), ids, pages });
            }
            Step::Close(which) if count > 0 => {
                cache.close(self.sequences.remove(which % count).slot);
            }
            Step::Extend(which, tokens) => self.extend(model, cache, which, tokens),
            Step::Fork(_) | Step::Close(_) => {}
        }
        self.count_pages();
        for kept in &self.sequences {
            assert_eq!(cache.length(kept.slot), kept.ids.len());
        }
        assert_eq!(cache.pages(), self.most, "after {step:?}");
    }

    fn extend(
        &mut self,
        model: &Frozen<Transformer>,
        cache: &mut KvCache,
        which: u8,
        tokens: usize,
    ) {
        let (mut batch, mut slots, mut extended) = (TokenBatch::new(), vec![], vec![]);
        for i in 0..self.sequences.len() {
            let more = tokens + i % 3;
            if which >> (i % 8) & 1 == 0 || self.sequences[i].ids.len() + more > MOST {
                continue;
            }
            let ids: Vec<u32> = (self.next_id..).map(|id| id * id % 19).take(more).collect();
            self.next_id = (self.next_id + more as u32) % 1000;
            let needed = (self.sequences[i].ids.len() + more).div_ceil(PAGE);
            while self.sequences[i].pages.len() < needed {
                let page = self.new_page();
                self.sequences[i].pages.push(page);
            }
            batch.push(&ids);
            slots.push(self.sequences[i].slot);
            self.sequences[i].ids.extend(&ids);
            extended.push(i);
        }
        if extended.is_empty() {
            return;
        }
        let got = host(model.extend(&batch, cache, &slots));
        let width = got.len() / batch.tokens();
        for (row, &i) in extended.iter().enumerate() {
            let rows = batch.rows(row);
            let ids = &self.sequences[i].ids;
            let mut own = KvCache::new();
            let slot = own.open();
            let alone = model.extend(&TokenBatch::from_iter([&ids[..]]), &mut own, &[slot]);
            let alone = host(alone);
            let alone = &alone[(ids.len() - rows.len()) * width..];
            assert_same(&got[rows.start * width..rows.end * width], alone, &format!("{ids:?}"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The output is bit for bit the same as when each sequence is processed separately in one
    /// pass. The number of pages equals the maximum needed at any time, so no page is leaked,
    /// shared by mistake or freed too early.
    #[test]
    fn any_order_of_steps(steps in steps(), rotary in any::<bool>()) {
        let json = match rotary {
            true => with(llama(), json!({"num_hidden_layers": 2, "max_position_embeddings": 64})),
            false => with(other(), json!({"block_size": 64})),
        };
        let model = Frozen::snapshot(&shaken(&config(&json), 1, &device()));
        let (mut simple, mut cache) = (Simple::default(), KvCache::new());
        for step in &steps {
            simple.take(&model, &mut cache, step);
        }
        // Extend all sequences once more, then check that all pages are returned.
        simple.take(&model, &mut cache, &Step::Extend(255, 1));
        while !simple.sequences.is_empty() {
            simple.take(&model, &mut cache, &Step::Close(0));
        }
        simple.take(&model, &mut cache, &Step::Open);
        simple.take(&model, &mut cache, &Step::Extend(255, PAGE));
    }
}
