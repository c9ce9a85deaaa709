//! Moving image data between plain, channels-last and blocked layouts.

use crate::{
    simd::{Body, LANES, Simd},
    view::{Image, Kind},
};

/// Copies rows of one block of channels from one image to another, whatever their kinds. Reads the
/// channels that exist; missing channels of a blocked destination become zero.
///
/// # Safety
/// Rows `y..y + rows` of image `n` exist in both; the destination is writable and apart.
pub(crate) struct CopyRows {
    pub(crate) from: Image,
    pub(crate) to: Image,
    pub(crate) n: usize,
    pub(crate) block: usize,
    pub(crate) y: usize,
    pub(crate) rows: usize,
}

impl Body for CopyRows {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let CopyRows { from, to, n, block, y, rows } = self;
        let lanes = from.lanes(block);
        for y in y..y + rows {
            let src = from.at(n, y as isize, 0).wrapping_add(block * from.sb) as *const f32;
            let dst = to.at(n, y as isize, 0).wrapping_add(block * to.sb);
            row::<S>(&from, src, &to, dst, from.dims.w, lanes);
        }
    }
}

#[inline(always)]
unsafe fn row<S: Simd>(
    from: &Image,
    src: *const f32,
    to: &Image,
    dst: *mut f32,
    w: usize,
    lanes: usize,
) {
    if from.kind == Kind::Plain && to.kind == Kind::Plain {
        for c in 0..lanes {
            for x in 0..w {
                *dst.add(c * to.sc + x * to.sw) = *src.add(c * from.sc + x * from.sw);
            }
        }
        return;
    }
    if lanes < LANES && to.kind == Kind::Last {
        // Few channels, such as an image's three: element by element.
        match lanes {
            1 => few::<1>(from, src, to, dst, w),
            2 => few::<2>(from, src, to, dst, w),
            3 => few::<3>(from, src, to, dst, w),
            4 => few::<4>(from, src, to, dst, w),
            5 => few::<5>(from, src, to, dst, w),
            6 => few::<6>(from, src, to, dst, w),
            _ => few::<7>(from, src, to, dst, w),
        }
        return;
    }
    let mut x = 0;
    while x < w {
        let count = (w - x).min(LANES);
        // Eight pixels, each a vector of eight channels.
        let mut pixels = [S::zero(); 8];
        if from.kind == Kind::Plain {
            for (c, pixel) in pixels.iter_mut().enumerate().take(lanes) {
                let p = src.add(c * from.sc + x * from.sw);
                *pixel = if count == LANES && from.sw == 1 {
                    S::load(p)
                } else {
                    let mut values = [0f32; LANES];
                    for (i, value) in values.iter_mut().enumerate().take(count) {
                        *value = *p.add(i * from.sw);
                    }
                    S::load(values.as_ptr())
                };
            }
            pixels = S::transpose(pixels);
        } else {
            for (i, pixel) in pixels.iter_mut().enumerate().take(count) {
                let p = src.add((x + i) * from.sw);
                *pixel = if lanes == LANES { S::load(p) } else { S::load_part(p, lanes) };
            }
        }
        if to.kind == Kind::Plain {
            let channels = S::transpose(pixels);
            for (c, channel) in channels.iter().enumerate().take(lanes) {
                let p = dst.add(c * to.sc + x * to.sw);
                if count == LANES && to.sw == 1 {
                    S::store(p, *channel);
                } else {
                    let mut values = [0f32; LANES];
                    S::store(values.as_mut_ptr(), *channel);
                    for (i, value) in values.iter().enumerate().take(count) {
                        *p.add(i * to.sw) = *value;
                    }
                }
            }
        } else {
            for (i, pixel) in pixels.iter().enumerate().take(count) {
                S::store(dst.add((x + i) * to.sw), *pixel);
            }
        }
        x += count;
    }
}

#[inline(always)]
unsafe fn few<const C: usize>(from: &Image, src: *const f32, to: &Image, dst: *mut f32, w: usize) {
    if from.sw == 1 && to.sw == C {
        for x in 0..w {
            for c in 0..C {
                *dst.add(x * C + c) = *src.add(c * from.sc + x);
            }
        }
        return;
    }
    for x in 0..w {
        for c in 0..C {
            *dst.add(x * to.sw + c) = *src.add(x * from.sw + c * from.sc);
        }
    }
}
