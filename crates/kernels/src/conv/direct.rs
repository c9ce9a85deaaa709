//! Direct convolution: each output pixel is a row of the register tile, and the window times the input
//! channels is a list of contiguous runs in the input, so that nothing is gathered.
//!
//! A transposed convolution of stride s is s x s direct ones of stride 1, one for each residue of the
//! output's coordinates.

use super::{Algorithm, Call, Common, ConvSpec};
use crate::{
    SpecError,
    layout::CopyRows,
    post::{Phase, Target, run_tile},
    simd::{Body, LANES, Simd},
    tile::{MAX_ROWS, Split, TileArgs, Tiles, part},
    view::{Image, ImageDims, Kind, Parts, Shared, dense_len, spread},
};

/// Output pixels of a block: their input stays in the second-level cache over all channel panels.
const PIXELS_OF_A_BLOCK: usize = 96;
/// Most pixels of a block.
const MOST_PIXELS: usize = 256;
/// Tasks to aim at, so that two or four threads end together.
const TASKS: usize = 8;

/// Output pixels `y step + first` that share their taps.
struct Grid {
    h: usize,
    w: usize,
    first: (usize, usize),
    runs: Vec<Taps>,
}

/// One contiguous run of the input, relative to a pixel: channels `channel..` of the group, for one
/// tap, or for `count` neighbouring taps of a row.
struct Taps {
    y: isize,
    x: isize,
    channel: usize,
    kernel: (usize, usize),
}

pub(super) struct Direct {
    common: Common,
    tiles: [Tiles; 4],
    /// Vectors of a full panel.
    vectors: usize,
    grids: Vec<Grid>,
    /// Elements of a run, and how many of the window's columns it spans.
    run: usize,
    spans: usize,
    in_step: (usize, usize),
    out_step: (usize, usize),
    /// The input is first copied to an image with this halo.
    copy: Option<(Kind, (usize, usize))>,
    pixels: usize,
    channel_parts: usize,
}

impl Direct {
    pub(super) fn new(common: Common, spec: &ConvSpec) -> Result<Direct, SpecError> {
        let fail = |what: String| SpecError::Unsupported { kind: "Conv", what };
        let g = &common.geometry;
        let (ic, oc) = (g.input.c / g.groups, g.output.c / g.groups);
        let kind = match g.input_kind {
            // Blocks of eight waste memory on a handful of channels.
            Kind::Plain if g.input.c < LANES => Kind::Last,
            Kind::Plain => Kind::Blocked,
            kind => kind,
        };
        let spans = if kind == Kind::Last
            && g.groups == 1
            && ic < LANES
            && g.dilations.1 == 1
            && !g.transposed
        {
            g.kernel.1
        } else {
            1
        };
        let run = match kind {
            Kind::Blocked if g.groups == 1 => LANES,
            Kind::Blocked => [8, 4, 2, 1].into_iter().find(|r| ic % r == 0).unwrap_or(1),
            _ if spans > 1 => spans * ic,
            _ if ic <= 128 => ic,
            _ => (32..=64).rev().find(|r| ic % r == 0).unwrap_or(ic),
        };
        let grids = grids(&common, ic, run, spans);
        let steps = if g.transposed { ((1, 1), g.strides) } else { (g.strides, (1, 1)) };
        let needed = needed_halo(g.input, &grids, steps.0, spans);
        let fits = needed.0 <= g.halo.0 && needed.1 <= g.halo.1 && g.input_kind != Kind::Plain;
        let vectors = match spec.knobs.vectors {
            0 if oc <= LANES => 1,
            0 if oc % 24 == 0 && oc % 16 != 0 => 3,
            0 => common.isa.tile_vectors(),
            v @ 1..=4 => usize::from(v),
            v => return Err(fail(format!("has tiles of 1 to 4 vectors, not {v}"))),
        };
        let pixels = match spec.knobs.block {
            0 => PIXELS_OF_A_BLOCK,
            block => (block as usize).min(MOST_PIXELS),
        };
        let isa = common.isa;
        Ok(Direct {
            tiles: [1, 2, 3, 4].map(|v| Tiles::new(isa, v)),
            vectors,
            grids,
            run,
            spans,
            in_step: steps.0,
            out_step: steps.1,
            copy: (!fits).then_some((kind, needed)),
            pixels,
            channel_parts: spec.knobs.channel_parts as usize,
            common,
        })
    }

    /// Panels of a group.
    fn panels(&self) -> usize {
        let g = &self.common.geometry;
        (g.output.c / g.groups).div_ceil(self.vectors * LANES)
    }

    /// Vectors of panel `p`: the last one is as narrow as its channels allow.
    fn panel_vectors(&self, p: usize) -> usize {
        let g = &self.common.geometry;
        let rest = g.output.c / g.groups - p * self.vectors * LANES;
        rest.div_ceil(LANES).min(self.vectors)
    }

    /// Columns of a group with padding.
    fn group_cols(&self) -> usize {
        let g = &self.common.geometry;
        (g.output.c / g.groups).next_multiple_of(LANES)
    }

    /// Offset of the weights of each grid in the packed constant: after the bias.
    fn weights_at(&self, grid: usize) -> usize {
        let cols = self.common.geometry.groups * self.group_cols();
        let k: usize = self.grids[..grid].iter().map(|g| g.runs.len() * self.run).sum();
        cols.next_multiple_of(16) + cols * k
    }

    /// The image that the tiles read.
    fn copied(&self) -> Option<(ImageDims, Kind, (usize, usize))> {
        let (kind, halo) = self.copy?;
        Some((self.common.geometry.input, kind, halo))
    }

    fn parts(&self) -> (usize, usize, u64) {
        let mut parts = Parts::new();
        let image = parts.add(self.copied().map_or(0, |(d, k, h)| dense_len(d, k, h)));
        let runs: usize = self.grids.iter().map(|g| g.runs.len()).sum();
        // An offset is as wide as a pointer, which is two elements.
        let offsets = parts.add(2 * runs * self.common.geometry.groups);
        (image, offsets, parts.bytes())
    }
}

fn grids(common: &Common, ic: usize, run: usize, spans: usize) -> Vec<Grid> {
    let g = &common.geometry;
    let residues = if g.transposed { g.strides } else { (1, 1) };
    // Along one dim: the taps of a residue as (offset in input pixels, window index).
    let taps = |residue: usize, k: usize, s: usize, d: usize, pad: usize| -> Vec<(isize, usize)> {
        if !g.transposed {
            return (0..k).map(|i| ((i * d) as isize - pad as isize, i)).collect();
        }
        (0..k)
            .filter_map(|i| {
                let at = (residue + pad) as isize - (i * d) as isize;
                (at.rem_euclid(s as isize) == 0).then(|| (at.div_euclid(s as isize), i))
            })
            .collect()
    };
    let mut grids = Vec::new();
    for ry in 0..residues.0 {
        for rx in 0..residues.1 {
            let h = (g.output.h + residues.0 - 1).saturating_sub(ry) / residues.0;
            let w = (g.output.w + residues.1 - 1).saturating_sub(rx) / residues.1;
            if h == 0 || w == 0 {
                continue;
            }
            let ys = taps(ry, g.kernel.0, g.strides.0, g.dilations.0, g.pads.0);
            let xs = taps(rx, g.kernel.1, g.strides.1, g.dilations.1, g.pads.1);
            let mut runs = Vec::new();
            let step = if spans > 1 { ic } else { run };
            for channel in (0..ic).step_by(step) {
                for &(y, ky) in &ys {
                    for &(x, kx) in xs.iter().step_by(spans) {
                        runs.push(Taps { y, x, channel, kernel: (ky, kx) });
                    }
                }
            }
            grids.push(Grid { h, w, first: (ry, rx), runs });
        }
    }
    grids
}

/// Halo that the taps reach into.
fn needed_halo(
    input: ImageDims,
    grids: &[Grid],
    step: (usize, usize),
    spans: usize,
) -> (usize, usize) {
    let (mut y, mut x) = (0isize, 0isize);
    for grid in grids {
        for taps in &grid.runs {
            let last_y = ((grid.h - 1) * step.0) as isize + taps.y;
            let last_x = ((grid.w - 1) * step.1 + spans - 1) as isize + taps.x;
            y = y.max(-taps.y).max(last_y + 1 - input.h as isize);
            x = x.max(-taps.x).max(last_x + 1 - input.w as isize);
        }
    }
    (y as usize, x as usize)
}

/// Copies a whole image, its halo included, on all threads.
///
/// # Safety
/// `to` is writable and apart from `from`.
pub(super) unsafe fn copy_image(call: &Call<'_>, isa: crate::Isa, from: Image, to: Image) {
    const ROWS: usize = 16;
    let (blocks, bands) = (from.dims.blocks(), from.dims.h.div_ceil(ROWS));
    to.zero_halo();
    let work = 2 * from.dims.n * from.dims.c * from.dims.h * from.dims.w;
    spread(call.run.pool, work, from.dims.n * blocks * bands, &|task, _| {
        let (task, block) = (task / blocks, task % blocks);
        let (n, band) = (task / bands, task % bands);
        let y = band * ROWS;
        let rows = (from.dims.h - y).min(ROWS);
        // SAFETY: every task writes rows of one block of its own.
        unsafe { isa.enter(CopyRows { from, to, n, block, y, rows }) };
    });
}

/// Where a pixel lies in input, output and residual.
#[derive(Clone, Copy)]
struct Pixel {
    a: *const f32,
    c: *mut f32,
    r: *const f32,
}

impl Pixel {
    const NONE: Pixel = Pixel { a: std::ptr::null(), c: std::ptr::null_mut(), r: std::ptr::null() };
}

/// Pixels `p0..p1` of a grid times some panels.
struct Block<'a> {
    of: &'a Direct,
    call: &'a Call<'a>,
    input: Image,
    offsets: *const isize,
    weights: *const f32,
    grid: &'a Grid,
    n: usize,
    pixels: (usize, usize),
    /// Range of panels, counted over all groups.
    units: (usize, usize),
}

impl Body for Block<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let of = self.of;
        let g = &of.common.geometry;
        let oc = g.output.c / g.groups;
        let (input, output, grid) = (self.input, self.call.output, self.grid);
        let (p0, p1) = self.pixels;
        let panels = of.panels();
        let k = grid.runs.len() * of.run;
        let mut args = TileArgs::new();
        args.segments = grid.runs.len();
        args.run = of.run;
        let epilogue = &of.common.epilogue;
        // Blocks of channels that several groups share are finished tile by tile.
        let late = epilogue.is_late() && (g.groups == 1 || oc.is_multiple_of(LANES));
        // Zero weights and bias make the missing channels zero, unless the epilogue moves 0.
        let zero_stays =
            late || matches!(epilogue.simple(), Some((_, low, high)) if low <= 0.0 && high >= 0.0);
        let residual = self.call.residual.unwrap_or(output);
        let count = p1 - p0;
        // Rows of the tiles: input, output and residual of each pixel.
        let mut pixels = [Pixel::NONE; MOST_PIXELS];
        let (mut y, mut x) = (p0 / grid.w, p0 % grid.w);
        for pixel in &mut pixels[..count] {
            let at = (y * of.in_step.0) as isize;
            let oy = (y * of.out_step.0 + grid.first.0) as isize;
            let ox = (x * of.out_step.1 + grid.first.1) as isize;
            *pixel = Pixel {
                a: input.at(self.n, at, (x * of.in_step.1) as isize),
                c: output.at(self.n, oy, ox),
                r: residual.at(self.n, oy, ox),
            };
            x += 1;
            if x == grid.w {
                (y, x) = (y + 1, 0);
            }
        }
        for unit in self.units.0..self.units.1 {
            let (group, panel) = (unit / panels, unit % panels);
            let tiles = &of.tiles[of.panel_vectors(panel) - 1];
            let (cols, first) = (tiles.cols(), panel * of.vectors * LANES);
            let column = group * of.group_cols() + first;
            args.offsets = self.offsets.add(group * grid.runs.len());
            args.bias = self.call.constant.add(column);
            args.w = self.weights.add(column * k);
            args.w_step = cols;
            let exist = (oc - first).min(cols);
            let last = output.kind == Kind::Blocked && group * oc + first + exist == g.output.c;
            let padded = if last { g.output.c.next_multiple_of(LANES) - g.output.c } else { 0 };
            let zero = padded > 0 && exist + padded == cols && zero_stays;
            let mut target = Target {
                c: [std::ptr::null_mut(); MAX_ROWS],
                r: [std::ptr::null(); MAX_ROWS],
                block: output.sb,
                first: group * oc + first,
                count: if zero { cols } else { exist },
                pad: if zero { 0 } else { padded },
            };
            let row_tiles = count.div_ceil(tiles.max_rows());
            let split = Split::new(count, row_tiles);
            for t in 0..row_tiles {
                let (start, rows) = split.part(t);
                for (q, pixel) in pixels[start..start + rows].iter().enumerate() {
                    (args.a[q], target.c[q], target.r[q]) = (pixel.a, pixel.c, pixel.r);
                }
                let phase = Phase { first: true, last: !late };
                let tile = if of.run == LANES { tiles.rows_eights(rows) } else { tiles.rows(rows) };
                run_tile::<S>(tile, &mut args, rows, cols, &target, epilogue, phase);
            }
        }
        if late {
            let channel = |unit: usize| unit / panels * oc + unit % panels * of.vectors * LANES;
            let last = self.units.1 - 1;
            let exist = (oc - last % panels * of.vectors * LANES).min(of.vectors * LANES);
            self.finish::<S>(&pixels[..count], (channel(self.units.0), channel(last) + exist));
        }
    }
}

impl Block<'_> {
    /// The epilogue over channels `c0..c1`, whose sums are written; `c0` starts a block of channels.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, pixels: &[Pixel], (c0, c1): (usize, usize)) {
        let (output, epilogue) = (self.call.output, &self.of.common.epilogue);
        if output.kind == Kind::Last {
            for p in pixels {
                epilogue.apply::<S>(p.c.add(c0), p.r.wrapping_add(c0), c1 - c0);
            }
            return;
        }
        let mut start = 0;
        while start < pixels.len() {
            // As many pixels as follow each other in memory.
            let at = pixels[start].c;
            let mut end = start + 1;
            while end < pixels.len() && pixels[end].c == at.wrapping_add((end - start) * LANES) {
                end += 1;
            }
            for b in c0 / LANES..c1.div_ceil(LANES) {
                let x = at.add(b * output.sb);
                let r = pixels[start].r.wrapping_add(b * output.sb);
                epilogue.apply::<S>(x, r, (end - start) * LANES);
                for i in 0..end - start {
                    for lane in output.lanes(b)..LANES {
                        *x.add(i * LANES + lane) = 0.0;
                    }
                }
            }
            start = end;
        }
    }
}

impl Algorithm for Direct {
    fn variant(&self) -> String {
        let tiles = &self.tiles[self.vectors - 1];
        let kind = if self.common.geometry.transposed { "transposed" } else { "direct" };
        format!("{kind}-{}x{}", tiles.max_rows(), tiles.cols())
    }

    fn tag(&self) -> String {
        let g = &self.common.geometry;
        let ((kh, kw), groups) = (g.kernel, g.groups);
        format!("{}-{kh}x{kw}-g{groups}-k{}", self.variant(), self.run)
    }

    fn workspace(&self, _: usize) -> u64 {
        self.parts().2
    }

    fn needs_dense_rows(&self) -> bool {
        self.spans > 1 && self.copy.is_none()
    }

    fn in_place(&self) -> bool {
        true
    }

    fn packed_len(&self) -> usize {
        self.weights_at(self.grids.len())
    }

    fn pack(&self, weights: &[f32], bias: &[f32], to: &mut [f32]) {
        let g = &self.common.geometry;
        let (ic, oc) = (g.input.c / g.groups, g.output.c / g.groups);
        let (kh, kw) = g.kernel;
        let cols = self.group_cols();
        for (c, &value) in bias.iter().enumerate() {
            to[c / oc * cols + c % oc] = value;
        }
        let width = self.vectors * LANES;
        for (number, grid) in self.grids.iter().enumerate() {
            let k = grid.runs.len() * self.run;
            let base = self.weights_at(number);
            for group in 0..g.groups {
                for o in 0..oc {
                    let panel = o / width;
                    let cols_of_panel = self.panel_vectors(panel) * LANES;
                    let at = base + (group * cols + panel * width) * k + o % width;
                    let mut row = 0;
                    for taps in &grid.runs {
                        for i in 0..self.run {
                            let (channel, kx) = if self.spans > 1 {
                                (i % ic, taps.kernel.1 + i / ic)
                            } else {
                                (taps.channel + i, taps.kernel.1)
                            };
                            if channel < ic {
                                let (a, b) = if g.transposed {
                                    (group * ic + channel, o)
                                } else {
                                    (group * oc + o, channel)
                                };
                                let second = if g.transposed { oc } else { ic };
                                let w = ((a * second + b) * kh + taps.kernel.0) * kw + kx;
                                to[at + row * cols_of_panel] = weights[w];
                            }
                            row += 1;
                        }
                    }
                }
            }
        }
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let g = &self.common.geometry;
        let ic = g.input.c / g.groups;
        let workspace = call.run.workspace.as_mut_ptr().cast::<f32>();
        let (image_at, offsets_at, _) = self.parts();
        let input = match self.copied() {
            Some((dims, kind, halo)) => {
                let image = Image::dense(workspace.wrapping_add(image_at), dims, kind, halo);
                copy_image(call, self.common.isa, call.input, image);
                image
            }
            None => call.input,
        };
        call.output.zero_halo();
        let offsets = workspace.wrapping_add(offsets_at).cast::<isize>();
        let panels = g.groups * self.panels();
        let mut runs_before = 0;
        for (number, grid) in self.grids.iter().enumerate() {
            let offsets = offsets.wrapping_add(runs_before * g.groups);
            runs_before += grid.runs.len();
            for group in 0..g.groups {
                for (i, taps) in grid.runs.iter().enumerate() {
                    let c = group * ic + taps.channel;
                    let channel = c / LANES * input.sb + c % LANES;
                    let pixel = taps.y * input.sh as isize + taps.x * input.sw as isize;
                    *offsets.add(group * grid.runs.len() + i) = pixel + channel as isize;
                }
            }
            let count = grid.h * grid.w;
            let blocks = count.div_ceil(self.pixels);
            let parts = match self.channel_parts {
                0 => TASKS.div_ceil(blocks * g.input.n),
                parts => parts,
            };
            let parts = parts.clamp(1, panels);
            let weights =
                Shared::new(call.constant.wrapping_add(self.weights_at(number)).cast_mut());
            let offsets = Shared::new(offsets);
            let k = grid.runs.len() * self.run;
            let work = g.input.n * count * panels * self.vectors * LANES * k;
            spread(call.run.pool, work, g.input.n * blocks * parts, &|task, _| {
                if call.run.cancel.is_cancelled() {
                    return;
                }
                let (task, units) = (task / parts, task % parts);
                let (n, block) = (task / blocks, task % blocks);
                let (p0, size) = part(count, blocks, block);
                let (u0, unit_count) = part(panels, parts, units);
                // SAFETY: each task writes pixels and channels of its own.
                unsafe {
                    self.common.isa.enter(Block {
                        of: self,
                        call,
                        input,
                        offsets: offsets.get(),
                        weights: weights.get(),
                        grid,
                        n,
                        pixels: (p0, p0 + size),
                        units: (u0, u0 + unit_count),
                    });
                }
            });
        }
    }
}
