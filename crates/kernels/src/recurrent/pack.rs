//! Constants as the kernel reads them.

use super::{Recurrent, RecurrentCell, Start};
use crate::{NativeKernel, Packed, SpecError, simd::LANES, spec::raw_constants};
use bricolage_tensor::{Storage, Tensor};

impl Recurrent {
    /// The packed weights of the inputs' product, then everything else.
    pub(super) fn pack_all(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
        let (s, d, gates) = (&self.spec, self.count(), self.spec.cell.gates());
        let (n, width) = (self.hidden, s.width as usize);
        let (count, rows) = (d as i64, gates as i64 * s.hidden);
        let kinds: [(bool, &[i64]); 6] = [
            (true, &[count, rows, s.width]),
            (true, &[count, rows, s.hidden]),
            (s.bias, &[count, 2 * rows]),
            (s.peepholes, &[count, 3 * s.hidden]),
            (s.state == Start::Constant, &self.dims[2]),
            (s.memory == Start::Constant, &self.dims[2]),
        ];
        let dims: Vec<&[i64]> = kinds.iter().filter(|k| k.0).map(|k| k.1).collect();
        let elements = raw_constants(&self.name, raw, &dims)?;
        let mut rest = elements.iter();
        let [w, r, bias, peepholes, state, memory] =
            kinds.map(|(is_there, _)| if is_there { rest.next() } else { None });
        let (w, r) = (w.map_or(&[][..], |w| w), r.map_or(&[][..], |r| r));
        let linear = matches!(s.cell, RecurrentCell::Gru { linear_before_reset: true });

        // The weights of the inputs with empty rows up to whole panels, and the sums of both biases.
        let padded = d * gates * self.row;
        let mut columns = vec![0f32; padded * width];
        let mut starts = vec![0f32; padded];
        for (block, (to, start)) in columns
            .chunks_exact_mut(self.row * width)
            .zip(starts.chunks_exact_mut(self.row))
            .enumerate()
        {
            to[..n * width].copy_from_slice(&w[block * n * width..][..n * width]);
            let Some(bias) = bias else { continue };
            let (direction, gate) = (block / gates, block % gates);
            let bias = &bias[direction * 2 * gates * n..][..2 * gates * n];
            for (u, start) in start[..n].iter_mut().enumerate() {
                let of_state = if linear && gate == 2 { 0.0 } else { bias[(gates + gate) * n + u] };
                *start = bias[gate * n + u] + of_state;
            }
        }
        let mut raw = vec![Tensor::of(&[padded as i64, s.width], &columns)];
        if s.bias {
            raw.push(Tensor::of(&[padded as i64], &starts));
        }
        let mut packed = self.projection.pack(&raw)?;

        let at = self.constants;
        let bytes = Storage::build(4 * at.len, |bytes| {
            let to: &mut [f32] = bytemuck::cast_slice_mut(bytes);
            for stage in &self.stages {
                let cols = stage.tiles.cols();
                for (i, panel) in to[stage.at..][..d * stage.panels * n * cols]
                    .chunks_exact_mut(n * cols)
                    .enumerate()
                {
                    let (direction, panel_number) = (i / stage.panels, i % stage.panels);
                    for (k, line) in panel.chunks_exact_mut(cols).enumerate() {
                        for (column, to) in line.iter_mut().enumerate() {
                            let (gate, lane) = (column / stage.units, column % stage.units);
                            let unit = panel_number * stage.units + lane;
                            if unit < n {
                                let row = (direction * gates + stage.first + gate) * n + unit;
                                *to = r[row * n + k];
                            }
                        }
                    }
                }
            }
            if let Some(bias) = bias.filter(|_| linear) {
                // Of the state's product, the candidate's only: the others are in the sums.
                let panels = self.stages[0].panels;
                for i in 0..d * n {
                    let (direction, unit) = (i / n, i % n);
                    let panel = direction * panels + unit / LANES;
                    let column = (panel * 3 + 2) * LANES + unit % LANES;
                    to[at.bias + column] = bias[(direction * 6 + 5) * n + unit];
                }
            }
            if let Some(peepholes) = peepholes {
                for (i, from) in peepholes.chunks_exact(n).enumerate() {
                    to[at.peepholes + i * self.row..][..n].copy_from_slice(from);
                }
            }
            for (start, from) in [(at.state, state), (at.memory, memory)] {
                if let Some(from) = from {
                    to[start..start + from.len()].copy_from_slice(from);
                }
            }
        });
        packed.push(Packed::opaque(&self.tag, bytes));
        Ok(packed)
    }
}
