//! Gradients of micro-batches that are distributed over ranks.

use std::ops::Range;
use std::time::{Duration, Instant};

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use grpo_model::{Forward, LanguageModel, parameters};
use grpo_runtime::{RankError, Ranks};

use crate::supervised::GradientSum;

/// Sums the gradients of micro-batches. In each round, every rank computes one micro-batch.
///
/// Floating-point sums depend on the order of their terms. Here, each element of the sum belongs to one
/// rank, which receives the element from all others and adds it in the order of the micro-batches.
/// The sum is therefore bit for bit the one that a single rank computes.
///
/// With n ranks, a rank sends `(n − 1)/n · 4` bytes for each trained parameter in each round, and once
/// more in [`Self::finish`].
pub(crate) struct DistributedGradients<'a> {
    ranks: &'a Ranks,
    /// The whole sum, if there is only one rank.
    alone: GradientSum,
    /// Gradients of this rank in the current round. A parameter may occur in several of them.
    parts: Vec<GradientsParams>,
    backward: Duration,
    /// The elements of the sum that belong to this rank.
    own: Option<Chunk>,
}

/// The elements of all trained parameters, one after another.
struct Layout {
    /// Range of each trained parameter, in the order in which the model is visited.
    parameters: Vec<Range<usize>>,
    elements: usize,
}

/// A part of the sum.
struct Chunk {
    layout: Layout,
    range: Range<usize>,
    values: Vec<f32>,
    /// Whether each parameter has received a gradient.
    is_present: Vec<bool>,
}

impl<'a> DistributedGradients<'a> {
    pub(crate) fn new(ranks: &'a Ranks) -> Self {
        Self {
            ranks,
            alone: GradientSum::default(),
            parts: Vec::new(),
            backward: Duration::ZERO,
            own: None,
        }
    }

    /// Computes the gradients of the micro-batch that this rank has in the current round.
    pub(crate) fn compute<M: LanguageModel>(
        &mut self,
        forward: Forward<M>,
        loss: Tensor<1>,
        model: &M,
    ) {
        if self.ranks.is_alone() {
            return self.alone.add_of(forward, loss, model);
        }
        let started = Instant::now();
        self.parts = forward.backward(loss, model);
        self.backward += started.elapsed();
    }

    /// Adds the gradients of all ranks in the current round.
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long.
    pub(crate) fn add_round<M: Module>(&mut self, model: &M) -> Result<(), RankError> {
        if self.ranks.is_alone() {
            return Ok(());
        }
        let own = self.own.get_or_insert_with(|| {
            let layout = Layout::of(model);
            let range = self.ranks.share(layout.elements);
            Chunk::new(layout, range)
        });
        let parts: Vec<Flat> =
            self.parts.drain(..).map(|part| own.layout.flatten(model, part)).collect();
        let message = |rank| {
            let range = self.ranks.share_of(rank, own.layout.elements);
            own.layout.message(&parts, &range)
        };
        let messages = (0..self.ranks.count()).map(message).collect();
        drop(parts);
        self.ranks.exchange(messages)?.iter().for_each(|message| own.add(message));
        Ok(())
    }

    /// Returns the sum, which is the same on all ranks.
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long.
    pub(crate) fn finish<M: Module>(self, model: &M) -> Result<GradientSum, RankError> {
        let Some(own) = self.own else { return Ok(self.alone) };
        let Chunk { layout, values, is_present, .. } = own;
        let message = bytemuck::cast_slice(&values).to_vec();
        drop(values);
        let chunks = self.ranks.exchange(vec![message; self.ranks.count()])?;
        let mut values = Vec::with_capacity(layout.elements);
        chunks.iter().for_each(|chunk| values.extend(floats(chunk)));
        // Parameters are present on all ranks or on none.
        let mut building = Building {
            layout: &layout,
            values,
            is_present,
            index: 0,
            gradients: GradientsParams::new(),
        };
        model.visit(&mut building);
        Ok(GradientSum::from_total(building.gradients, self.backward))
    }
}

/// Gradients of one part, by parameter.
type Flat = Vec<Option<Vec<f32>>>;

impl Layout {
    fn of<M: Module>(model: &M) -> Self {
        let mut elements = 0;
        let trained = parameters(model).into_iter().filter(|parameter| parameter.is_on_tape);
        let parameters = trained
            .map(|parameter| {
                let start = elements;
                elements += parameter.num_elements();
                start..elements
            })
            .collect();
        Self { parameters, elements }
    }

    fn flatten<M: Module>(&self, model: &M, part: GradientsParams) -> Flat {
        let mut flattening = Flattening { part, flat: Vec::with_capacity(self.parameters.len()) };
        model.visit(&mut flattening);
        flattening.flat
    }

    /// Returns the elements of `parts` in `range`: the number of parts, and for each part one byte per
    /// parameter, which is 1 if the part contains it, and its elements in `range`.
    fn message(&self, parts: &[Flat], range: &Range<usize>) -> Vec<u8> {
        let mut message = (parts.len() as u32).to_le_bytes().to_vec();
        for part in parts {
            message.extend(part.iter().map(|values| u8::from(values.is_some())));
            for (place, values) in self.parameters.iter().zip(part) {
                let (Some(values), Some(within)) = (values, overlap(place, range)) else {
                    continue;
                };
                let values = &values[within.start - place.start..within.end - place.start];
                message.extend_from_slice(bytemuck::cast_slice(values));
            }
        }
        message
    }
}

impl Chunk {
    fn new(layout: Layout, range: Range<usize>) -> Self {
        let is_present = vec![false; layout.parameters.len()];
        Self { values: vec![0.0; range.len()], is_present, layout, range }
    }

    /// Adds the parts of one micro-batch.
    fn add(&mut self, message: &[u8]) {
        let (parts, mut rest) = message.split_at(4);
        let parts = u32::from_le_bytes([parts[0], parts[1], parts[2], parts[3]]);
        for _part in 0..parts {
            let (contained, values) = rest.split_at(self.layout.parameters.len());
            rest = values;
            for (index, place) in self.layout.parameters.iter().enumerate() {
                if contained[index] == 0 {
                    continue;
                }
                let is_first = !std::mem::replace(&mut self.is_present[index], true);
                let Some(within) = overlap(place, &self.range) else { continue };
                let (values, behind) = rest.split_at(4 * within.len());
                rest = behind;
                let at = within.start - self.range.start;
                let sums = &mut self.values[at..at + within.len()];
                for (sum, value) in sums.iter_mut().zip(floats(values)) {
                    // 0 + -0 would be 0.
                    *sum = if is_first { value } else { *sum + value };
                }
            }
        }
    }
}

/// Returns the part of `place` in `range`, if there is any.
fn overlap(place: &Range<usize>, range: &Range<usize>) -> Option<Range<usize>> {
    let (start, end) = (place.start.max(range.start), place.end.min(range.end));
    (start < end).then_some(start..end)
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.chunks_exact(4).map(|four| f32::from_ne_bytes([four[0], four[1], four[2], four[3]]))
}

/// Takes the gradients of trained parameters out of a part.
struct Flattening {
    part: GradientsParams,
    flat: Flat,
}

impl ModuleVisitor for Flattening {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.val().is_autodiff() {
            return;
        }
        let gradient = self.part.remove::<D>(param.id);
        let elements = |gradient: Tensor<D>| gradient.into_data().try_into_vec::<f32>();
        let flat = gradient.map(|gradient| elements(gradient).expect("gradients are f32"));
        self.flat.push(flat);
    }
}

/// Converts the sum to gradients by parameter.
struct Building<'a> {
    layout: &'a Layout,
    values: Vec<f32>,
    is_present: Vec<bool>,
    index: usize,
    gradients: GradientsParams,
}

impl ModuleVisitor for Building<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        if !value.is_autodiff() {
            return;
        }
        let place = self.layout.parameters[self.index].clone();
        if self.is_present[self.index] {
            let data = TensorData::new(self.values[place].to_vec(), value.dims());
            let gradient = Tensor::<D>::from_data(data, &value.inner().device());
            self.gradients.register(param.id, gradient);
        }
        self.index += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three micro-batches of two parameters, one of which occurs twice in a part, in chunks of all
    /// sizes.
    #[test]
    fn chunks_are_added_in_the_order_of_the_micro_batches() {
        let parameters = vec![0..3, 3..8];
        let part = |of: f32, first: bool, second: bool| -> Flat {
            let values = |place: &Range<usize>, is_some: bool| {
                is_some
                    .then(|| place.clone().map(|element| of * 1e7 + element as f32 / 3.0).collect())
            };
            vec![values(&parameters[0], first), values(&parameters[1], second)]
        };
        let micro_batches = [
            vec![part(1.0, true, false), part(-0.3, false, true)],
            vec![part(-1.0, true, true), part(0.7, true, false)],
            vec![part(0.1, false, true)],
        ];
        let mut expected = [0.0_f32; 8];
        for part in micro_batches.iter().flatten() {
            for (place, values) in parameters.iter().zip(part) {
                let values = values.iter().flatten();
                expected[place.clone()].iter_mut().zip(values).for_each(|(sum, x)| *sum += x);
            }
        }
        for count in 1..10 {
            let mut sum = Vec::new();
            for rank in 0..count {
                let layout = || Layout { parameters: parameters.clone(), elements: 8 };
                let range = 8 * rank / count..8 * (rank + 1) / count;
                let mut chunk = Chunk::new(layout(), range.clone());
                for parts in &micro_batches {
                    chunk.add(&layout().message(parts, &range));
                }
                assert_eq!(chunk.is_present, [true, true]);
                sum.extend(chunk.values);
            }
            assert_eq!(sum, expected, "{count} ranks");
        }
    }

    #[test]
    fn negative_zero_and_missing_parameters_stay_as_they_are() {
        let layout = || Layout { parameters: vec![0..1, 1..2], elements: 2 };
        let mut chunk = Chunk::new(layout(), 0..2);
        chunk.add(&layout().message(&[vec![Some(vec![-0.0]), None]], &(0..2)));
        assert_eq!(chunk.values[0].to_bits(), (-0.0_f32).to_bits());
        assert_eq!(chunk.is_present, [true, false]);
        // A rank without a micro-batch in this round.
        chunk.add(&layout().message(&[], &(0..2)));
        assert_eq!(chunk.values[0].to_bits(), (-0.0_f32).to_bits());
    }
}
