//! What it costs to move a value from one format to another.

use crate::{
    ConversionPrices, PlaceError, Price, Pricing, Trial, TrialError,
    doubts::{impossible, least_ns_to_write},
};
use bricolage_backend::{Backend, BackendKind, Registry};
use bricolage_measure::{Contestant, Key, Protocol, Record, Verdict, race};
use bricolage_tensor::{Format, Rng, Tensor};
use std::{cell::RefCell, collections::BTreeSet, sync::Arc, time::Duration};

/// Conversions by the backends of a registry, measured once per dims, formats and threads.
pub struct MeasuredConversions<'a> {
    /// Where trials run and records are kept.
    pub pricing: &'a Pricing<'a>,
    /// Who converts.
    pub registry: &'a Registry,
    /// Times in the database that cannot be, each with the conversion and why; they are taken anew.
    pub doubted: RefCell<BTreeSet<String>>,
}

impl<'a> MeasuredConversions<'a> {
    /// Conversions by the backends of `registry`.
    pub fn new(pricing: &'a Pricing<'a>, registry: &'a Registry) -> MeasuredConversions<'a> {
        MeasuredConversions { pricing, registry, doubted: RefCell::default() }
    }

    /// The backends that convert between these formats, the reference last.
    pub fn converters(
        registry: &Registry,
        dims: &[i64],
        from: &Format,
        to: &Format,
    ) -> Vec<Arc<dyn Backend>> {
        let (trusted, others): (Vec<_>, Vec<_>) =
            registry.iter().partition(|b| b.kind() == BackendKind::Reference);
        let all = others.into_iter().chain(trusted);
        all.filter(|b| b.convert(dims, from, to).is_some()).cloned().collect()
    }

    fn key(&self, backend: &dyn Backend, dims: &[i64], from: &Format, to: &Format) -> Key {
        let threads = self.pricing.setting.threads;
        Key(format!(
            "conversion 1\n{} {}\n{from} to {to} {dims:?}\nthreads {threads}",
            backend.name(),
            backend.version()
        ))
    }

    fn trial(
        &self,
        backend: &Arc<dyn Backend>,
        dims: &[i64],
        from: &Format,
        to: &Format,
    ) -> Result<Record, TrialError> {
        let p = self.pricing;
        let bound = backend
            .convert(dims, from, to)
            .ok_or_else(|| TrialError::new("it does not convert between these formats"))?;
        let mut rng = Rng::new(dims.iter().sum::<i64>().unsigned_abs());
        let content = Tensor::generate(from.dtype, dims, |_| rng.below(255) as f64 - 127.0);
        let outputs = [(dims.to_vec(), to.clone())];
        let trial = Trial::new(
            &bound,
            &[(content.clone(), from.clone())],
            &outputs,
            p.setting.threads,
            p.last_level_cache,
        )?;
        let mut open = p.bench.open(backend.name(), trial)?;
        if open.results()? != [content] {
            return Err(TrialError::new("it does not keep the elements"));
        }
        let protocol = Protocol {
            warmup: Duration::from_millis(4),
            limit: Duration::from_millis(200),
            max_samples: 15,
            ..Protocol::default()
        };
        let verdict =
            race(&mut [Contestant { sample: Box::new(&mut *open) }], &protocol, None, p.cancel);
        match verdict.into_iter().next() {
            Some(Verdict::Measured(measurement)) => {
                Ok(Record::Measured { measurement, error_share: 0.0, workspace: 0, refined: true })
            }
            Some(Verdict::Failed(why)) => Err(TrialError::new(why.0)),
            Some(Verdict::Stopped) | None => {
                Err(TrialError::momentary("the measurement was stopped"))
            }
        }
    }
}

impl ConversionPrices for MeasuredConversions<'_> {
    fn backends(&self, dims: &[i64], from: &Format, to: &Format) -> Vec<Arc<dyn Backend>> {
        Self::converters(self.registry, dims, from, to)
    }

    fn known(
        &self,
        backend: &Arc<dyn Backend>,
        dims: &[i64],
        from: &Format,
        to: &Format,
    ) -> Result<Option<Price>, PlaceError> {
        let record = self.pricing.database.get(&self.key(&**backend, dims, from, to))?;
        if let Some(Record::Measured { measurement, .. }) = &record {
            let bytes = to.byte_len(dims).unwrap_or(0);
            let least = least_ns_to_write(bytes, self.pricing.setting.threads);
            if let Some(why) = impossible(measurement, least) {
                let name = backend.name();
                let doubt = format!("{name} `{from} to {to}` of {dims:?}: {why}");
                self.doubted.borrow_mut().insert(doubt);
                return Ok(None);
            }
        }
        Ok(record.map(Price::from))
    }

    fn measure(
        &self,
        backend: &Arc<dyn Backend>,
        dims: &[i64],
        from: &Format,
        to: &Format,
    ) -> Result<Price, PlaceError> {
        if self.pricing.is_over(self.pricing.cover_deadline) {
            return Ok(Price::Unmeasured);
        }
        let record = match self.trial(backend, dims, from, to) {
            Ok(record) => record,
            Err(why) if why.momentary || self.pricing.cancel.is_cancelled() => {
                return Ok(Price::Unmeasured);
            }
            Err(why) => Record::Refused(why.why),
        };
        self.pricing.database.put(&self.key(&**backend, dims, from, to), &record)?;
        Ok(Price::from(record))
    }
}

/// Conversions by the backends of a registry without a price: what moves the fewest bytes decides.
pub struct Unpriced<'a>(pub &'a Registry);

impl ConversionPrices for Unpriced<'_> {
    fn backends(&self, dims: &[i64], from: &Format, to: &Format) -> Vec<Arc<dyn Backend>> {
        MeasuredConversions::converters(self.0, dims, from, to)
    }

    fn known(
        &self,
        _: &Arc<dyn Backend>,
        _: &[i64],
        _: &Format,
        _: &Format,
    ) -> Result<Option<Price>, PlaceError> {
        Ok(Some(Price::Unmeasured))
    }

    fn measure(
        &self,
        _: &Arc<dyn Backend>,
        _: &[i64],
        _: &Format,
        _: &Format,
    ) -> Result<Price, PlaceError> {
        Ok(Price::Unmeasured)
    }
}
