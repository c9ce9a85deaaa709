//! Loops over several strided operands at once, with as few dims as their strides allow.

/// Most operands of a nest, and most dims.
pub(crate) const MAX_OPERANDS: usize = 32;
pub(crate) const MAX_DIMS: usize = 10;

/// A collapsed iteration space: rows of elements, counted over all dims but the last.
#[derive(Clone)]
pub(crate) struct Nest {
    dims: [usize; MAX_DIMS],
    rank: usize,
    strides: [[usize; MAX_DIMS]; MAX_OPERANDS],
}

impl Nest {
    /// Over `extents`, with the strides of each operand; at most [`MAX_OPERANDS`] of them.
    pub(crate) fn new(extents: &[usize], operands: &[[usize; MAX_DIMS]]) -> Nest {
        let mut nest =
            Nest { dims: [1; MAX_DIMS], rank: 0, strides: [[0; MAX_DIMS]; MAX_OPERANDS] };
        for (d, &extent) in extents.iter().enumerate() {
            if extent == 1 {
                continue;
            }
            // Joins the dim before when every operand walks through both as through one.
            let joins = nest.rank > 0
                && operands
                    .iter()
                    .zip(&nest.strides)
                    .all(|(new, old)| old[nest.rank - 1] == new[d] * extent);
            if !joins {
                nest.rank += 1;
                nest.dims[nest.rank - 1] = 1;
            }
            let at = nest.rank - 1;
            nest.dims[at] *= extent;
            for (strides, operand) in nest.strides.iter_mut().zip(operands) {
                strides[at] = operand[d];
            }
        }
        // Always rows and elements.
        while nest.rank < 2 {
            for d in (0..nest.rank).rev() {
                nest.dims[d + 1] = nest.dims[d];
                for strides in &mut nest.strides {
                    strides[d + 1] = strides[d];
                }
            }
            nest.dims[0] = 1;
            for strides in &mut nest.strides {
                strides[0] = 0;
            }
            nest.rank += 1;
        }
        nest
    }

    /// Elements of a row.
    pub(crate) fn width(&self) -> usize {
        self.dims[self.rank - 1]
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.dims[..self.rank - 1].iter().product()
    }

    /// Rows that follow each other with equal strides.
    pub(crate) fn inner_rows(&self) -> usize {
        self.dims[self.rank - 2]
    }

    /// An operand's distance between such rows, and between elements.
    pub(crate) fn inner_strides(&self, operand: usize) -> (usize, usize) {
        let strides = &self.strides[operand];
        (strides[self.rank - 2], strides[self.rank - 1])
    }

    /// Offset of a row's first element in an operand.
    #[inline]
    pub(crate) fn offset(&self, operand: usize, mut row: usize) -> usize {
        let strides = &self.strides[operand];
        let mut offset = 0;
        for d in (0..self.rank - 1).rev() {
            if row == 0 {
                break;
            }
            offset += row % self.dims[d] * strides[d];
            row /= self.dims[d];
        }
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strides(list: &[usize]) -> [usize; MAX_DIMS] {
        let mut all = [0; MAX_DIMS];
        all[..list.len()].copy_from_slice(list);
        all
    }

    #[test]
    fn dims_join_where_all_operands_allow() {
        let nest = Nest::new(&[2, 3, 1, 4], &[strides(&[12, 4, 4, 1]), strides(&[12, 4, 9, 1])]);
        assert_eq!((nest.rows(), nest.width()), (1, 24));
        let nest = Nest::new(&[2, 3, 4], &[strides(&[12, 4, 1]), strides(&[0, 4, 1])]);
        assert_eq!((nest.rows(), nest.width(), nest.inner_rows()), (2, 12, 2));
        assert_eq!((nest.offset(0, 1), nest.offset(1, 1)), (12, 0));
        let nest = Nest::new(&[], &[]);
        assert_eq!((nest.rows(), nest.width()), (1, 1));
        let nest = Nest::new(&[5, 0], &[strides(&[1, 5])]);
        assert_eq!(nest.rows() * nest.width(), 0);
    }
}
