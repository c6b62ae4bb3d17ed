//! Location of callers, from a file in the `MaxMind` database format.
//!
//! The operator provides the file. Without one, locations are unknown and no region is recommended
//! (CP-3).

use std::net::IpAddr;
use std::path::Path;

use api::control::plans::Provider;
use maxminddb::{Reader, geoip2};

use crate::billing::plans::{Coordinates, Region};

/// A geolocation file. All of it is in memory.
pub struct Geo(Reader<Vec<u8>>);

/// Location of an address, as far as it is in the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Location {
    /// Country: two capital letters (ISO 3166-1).
    pub country: Option<String>,
    /// Coordinates in degrees.
    pub coordinates: Option<Coordinates>,
}

impl Geo {
    /// Reads a file. This blocks, so do not call it in async code.
    pub fn open(file: &Path) -> Result<Self, GeoError> {
        let bytes = std::fs::read(file).map_err(GeoError::Unreadable)?;
        Reader::from_source(bytes)
            .map(Self)
            .map_err(|error| GeoError::NotADatabase(error.to_string()))
    }

    /// Looks an address up. An address that is not in the file, or a record of another form, has no
    /// location. A broken file must not prevent the creation of projects.
    pub fn locate(&self, address: IpAddr) -> Location {
        // Both kinds of file with countries can be decoded as a city. Missing data is absent.
        let found = self
            .0
            .lookup(address.to_canonical())
            .and_then(|found| found.decode::<geoip2::City<'_>>());
        let Ok(Some(city)) = found else {
            return Location::default();
        };
        Location {
            country: city.country.iso_code.map(str::to_owned),
            coordinates: city.location.latitude.zip(city.location.longitude).map(
                |(latitude, longitude)| Coordinates {
                    latitude,
                    longitude,
                },
            ),
        }
    }
}

impl std::fmt::Debug for Geo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Geo")
            .field(&self.0.metadata().database_type)
            .finish()
    }
}

/// The region to recommend: the nearest one, or the first that names the country.
pub fn nearest(location: &Location, regions: &[&Region]) -> Option<(Provider, String)> {
    let by_distance = location.coordinates.and_then(|here| {
        regions
            .iter()
            .filter_map(|region| Some((region, here.angle_to(region.coordinates?))))
            .min_by(|(_, left), (_, right)| left.total_cmp(right))
            .map(|(region, _)| region)
    });
    let by_country = || {
        let country = location.country.as_ref()?;
        regions
            .iter()
            .find(|region| region.countries.contains(country))
    };
    by_distance
        .or_else(by_country)
        .map(|region| (region.provider, region.region.clone()))
}

/// A geolocation file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GeoError {
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[source] std::io::Error),
    /// The file has another format.
    #[error("is not a MaxMind database: {0}")]
    NotADatabase(String),
}

#[cfg(test)]
mod tests {
    use api::control::plans::Plan;

    use super::*;
    use crate::billing::plans::{CatalogSection, Catalogue};

    /// Four networks of the documentation ranges: Paris, San Francisco, New Zealand with a country
    /// only, and a record of another form.
    fn file() -> Geo {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/places.mmdb");
        Geo::open(Path::new(path)).unwrap()
    }

    fn catalogue() -> Catalogue {
        let section: CatalogSection = serde_json::from_value(serde_json::json!({"regions": [
            {"provider": "aws", "region": "eu", "latitude": 50.1, "longitude": 8.7},
            {"provider": "aws", "region": "us", "latitude": 39.0, "longitude": -77.5},
            {"provider": "gcp", "region": "au", "countries": ["AU", "NZ"]},
        ]}))
        .unwrap();
        section.check(Some("engine.test")).unwrap()
    }

    fn recommended(address: &str) -> Option<String> {
        let catalogue = catalogue();
        let regions: Vec<_> = catalogue
            .regions()
            .iter()
            .filter(|region| region.plans.contains(&Plan::Basic))
            .collect();
        let location = file().locate(address.parse().unwrap());
        nearest(&location, &regions).map(|(_, region)| region)
    }

    /// CP-3: a region is only recommended if the caller's location is known.
    #[test]
    fn cp_3_the_nearest_region_is_recommended() {
        for (address, region) in [
            ("192.0.2.9", Some("eu")),
            ("::ffff:192.0.2.9", Some("eu")),
            ("2001:db8:1::9", Some("eu")),
            ("198.51.100.9", Some("us")),
            ("203.0.113.9", Some("au")),
            ("127.0.0.1", None),
            ("2001:db8:2::9", None),
            ("192.0.0.9", None),
        ] {
            assert_eq!(recommended(address).as_deref(), region, "{address}");
        }
    }

    #[test]
    fn another_file_is_refused() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        assert!(matches!(Geo::open(path), Err(GeoError::NotADatabase(_))));
        let missing = Geo::open(Path::new("/nonexistent/places.mmdb"));
        assert!(matches!(missing, Err(GeoError::Unreadable(_))));
    }
}
