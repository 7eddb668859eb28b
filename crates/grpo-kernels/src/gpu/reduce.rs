//! Reductions over the units of a cube.

use cubecl::prelude::*;

/// Number of units per cube, a power of two.
pub(super) const UNITS: usize = 128;

/// Returns the sum of `value` over all units, in an order that depends on nothing.
///
/// All units of the cube have to call it. `shared` has [`UNITS`] elements.
#[cube]
pub(super) fn sum_of_units(value: f32, shared: &mut Shared<[f32]>) -> f32 {
    let unit = UNIT_POS as usize;
    shared[unit] = value;
    sync_cube();
    let mut half = comptime!(UNITS / 2).runtime();
    while half > 0 {
        if unit < half {
            let other = shared[unit + half];
            shared[unit] += other;
        }
        sync_cube();
        half /= 2;
    }
    let total = shared[0];
    // No unit writes the next value before all have read this one.
    sync_cube();
    total
}

/// Returns the largest `value` of all units.
#[cube]
pub(super) fn max_of_units(value: f32, shared: &mut Shared<[f32]>) -> f32 {
    let unit = UNIT_POS as usize;
    shared[unit] = value;
    sync_cube();
    let mut half = comptime!(UNITS / 2).runtime();
    while half > 0 {
        if unit < half {
            let (own, other) = (shared[unit], shared[unit + half]);
            shared[unit] = own.max(other);
        }
        sync_cube();
        half /= 2;
    }
    let largest = shared[0];
    sync_cube();
    largest
}

/// Returns the sum of `value` over all units before this one.
#[cube]
pub(super) fn sum_of_units_before(value: f32, shared: &mut Shared<[f32]>) -> f32 {
    let unit = UNIT_POS as usize;
    shared[unit] = value;
    sync_cube();
    let mut before = 0.0f32;
    for other in 0..UNITS {
        if other < unit {
            before += shared[other];
        }
    }
    sync_cube();
    before
}
