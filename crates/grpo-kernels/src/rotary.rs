//! Rotary position embeddings (Su et al. 2021, "RoFormer", equation 34), in the half-split form
//! used by Llama.

pub(crate) mod tables;

use burn::tensor::Tensor;

pub use tables::RotaryTables;

/// Rotates each pair `(x_i, x_{i + width/2})` of each head by the angle for its row. The rotation
/// happens in place if `x` has no other owner.
///
/// # Shapes
/// - x: `[n, heads · width]`
/// - result: same as x
///
/// # Panics
/// Panics if the tables have a different number of rows, or if their width does not match the
/// heads.
pub fn rotary(x: Tensor<2>, tables: &RotaryTables) -> Tensor<2> {
    let ([rows, columns], [angles, half]) = (x.dims(), tables.cos.dims());
    assert_eq!(tables.sin.dims(), [angles, half], "sines against cosines");
    let fits = rows == angles && half > 0 && columns.is_multiple_of(2 * half);
    assert!(fits, "[{rows}, {columns}] does not fit rotary angles [{angles}, {half}]");
    #[cfg(feature = "flex")]
    if [&x, &tables.cos, &tables.sin].into_iter().all(crate::backend::is_fusable) {
        return crate::backend::rotary(x, [tables.cos.clone(), tables.sin.clone()]);
    }
    #[cfg(feature = "gpu")]
    if [&x, &tables.cos, &tables.sin].into_iter().all(crate::gpu::is_fusable) {
        return crate::gpu::rotary(x, [tables.cos.clone(), tables.sin.clone()]);
    }
    crate::plain::rotary(x, tables)
}
