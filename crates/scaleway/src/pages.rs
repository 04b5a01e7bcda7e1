//! Whole lists, page by page, while others create and delete.
//!
//! Pages are counted by position, so a deletion moves everything behind it forward: who reads
//! forward steps over an item that moves from the next page to the present one. **We read
//! backward.** Positions only ever get smaller (new items come last), the page that we read gets
//! smaller by one at a time, and so an item that is there throughout cannot pass us: at the start
//! it is on our page or before it, at the end on our page or behind it. It may meet us twice but
//! not miss us. What we meet twice we keep once, as last seen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::{Client, Request};
use crate::error::{Error, ErrorKind};

/// The largest page that the API gives.
const PAGE_SIZE: u64 = 100;

/// More pages than this are taken for a broken answer: 100,000 hosts.
const PAGES_MAX: u64 = 1_000;

/// How long a whole list may take, repeated reads included: ten pages a second get to the end.
pub const LIST_TIMEOUT: Duration = Duration::from_mins(2);

/// One page of a list, whatever the list is called.
#[derive(Deserialize)]
struct Page<T> {
    total_count: u64,
    #[serde(rename = "servers", alias = "os", alias = "ssh_keys")]
    items: Vec<T>,
}

/// Something that lists hold.
pub(crate) trait Listed: DeserializeOwned {
    /// What tells it from all others of its list.
    fn id(&self) -> &str;
}

impl Client {
    /// Everything that `request` lists, in the API's order of creation.
    pub(crate) async fn all_pages<T: Listed>(&self, request: &Request) -> Result<Vec<T>, Error> {
        let whole = tokio::time::timeout(LIST_TIMEOUT, self.pages(request)).await;
        whole.unwrap_or_else(|_| {
            let message = format!("not all pages within {LIST_TIMEOUT:?}");
            Err(Error::new(ErrorKind::Other, request.operation, message))
        })
    }

    async fn pages<T: Listed>(&self, request: &Request) -> Result<Vec<T>, Error> {
        let first = self.page(request, 1).await?;
        let last = last_page(request, &first)?;
        let mut pages = BTreeMap::new();
        if last == 1 {
            pages.insert(1, first.items);
        }
        for number in (1..=last).rev().filter(|_| last > 1) {
            pages.insert(number, self.page(request, number).await?.items);
        }
        Ok(distinct(pages))
    }

    async fn page<T: Listed>(&self, request: &Request, number: u64) -> Result<Page<T>, Error> {
        let request = request
            .clone()
            .query("page", &number.to_string())
            .query("page_size", &PAGE_SIZE.to_string());
        self.read(&request).await
    }
}

/// How many pages there are, by what the first one holds: the API may give fewer than we ask for.
fn last_page<T>(request: &Request, first: &Page<T>) -> Result<u64, Error> {
    let size = first.items.len() as u64;
    if first.total_count <= size {
        return Ok(1);
    }
    let pages = if size == 0 { None } else { Some(first.total_count.div_ceil(size)) };
    pages.filter(|pages| *pages <= PAGES_MAX).ok_or_else(|| {
        let message = format!("{size} items on the first page of {} in all", first.total_count);
        Error::new(ErrorKind::Other, request.operation, message)
    })
}

/// Each item once, as it was last seen. A smaller page was read later.
fn distinct<T: Listed>(pages: BTreeMap<u64, Vec<T>>) -> Vec<T> {
    let mut seen = BTreeSet::new();
    pages.into_values().flatten().filter(|item| seen.insert(item.id().to_owned())).collect()
}
