//! Pagination of lists, newest first. A page of a filtered list may be short even if more pages follow, because the
//! number of reads per page is limited.

use purser_domain::Result;

/// One page of a list.
#[derive(Debug, PartialEq, Eq)]
pub struct Page<T, P> {
    /// The rows of the page, newest first.
    pub items: Vec<T>,
    /// The cursor of the next page; `None` at the end of the list.
    pub next: Option<P>,
}

impl<T, P> Default for Page<T, P> {
    fn default() -> Self {
        let (items, next) = (Vec::new(), None);
        Self { items, next }
    }
}

/// The position at which a page of a list begins, and the maximum number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest<P> {
    /// The page contains only rows before this position; `None` starts with the newest row.
    pub before: Option<P>,
    /// The maximum number of rows on the page: at most [`MAX_ROWS_PER_READ`].
    pub limit: u32,
}

/// Whether a page includes a row, and whether older rows follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// The page includes this row.
    Keep,
    /// The page omits this row.
    Skip,
    /// The page omits this row and all older rows.
    Stop,
}

impl Filter {
    /// Keeps the row if `is_wanted`, and skips it otherwise.
    pub const fn keep_if(is_wanted: bool) -> Self {
        if is_wanted { Self::Keep } else { Self::Skip }
    }
}

/// The maximum number of rows that one call reads.
pub const MAX_ROWS_PER_READ: u32 = 100;
/// The maximum number of read calls for one page.
pub const READS: u32 = 10;

/// Reads a page in at most `max_reads` calls of `read`. `read` returns the newest rows before a position, up to a limit.
/// `filter` selects rows; `None` selects all.
pub async fn read_page<T, P: Copy, R: Future<Output = Result<Vec<T>>>>(
    page_request: PageRequest<P>,
    max_reads: u32,
    filter: Option<impl Fn(&T) -> Filter>,
    cursor: impl Fn(&T) -> P,
    read: impl Fn(Option<P>, u32) -> R,
) -> Result<Page<T, P>> {
    read_page_with_batch_size(page_request, (max_reads, MAX_ROWS_PER_READ), filter, cursor, read).await
}

/// Reads a page like [`read_page`], but `rows_per_read` rows per call if the list is filtered.
pub async fn read_page_with_batch_size<T, P: Copy, R: Future<Output = Result<Vec<T>>>>(
    page_request: PageRequest<P>,
    (max_reads, rows_per_read): (u32, u32),
    filter: Option<impl Fn(&T) -> Filter>,
    cursor: impl Fn(&T) -> P,
    read: impl Fn(Option<P>, u32) -> R,
) -> Result<Page<T, P>> {
    let limit = usize::try_from(page_request.limit).unwrap_or(usize::MAX);
    // One additional row shows whether another page follows.
    let at_once = match filter {
        Some(_) => rows_per_read,
        None => page_request.limit.saturating_add(1).min(MAX_ROWS_PER_READ),
    };
    let mut items = Vec::new();
    let mut seen = page_request.before;
    for _ in 0..max_reads {
        let rows = read(seen, at_once).await?;
        let is_last = u32::try_from(rows.len()).is_ok_and(|count| count < at_once);
        for row in rows {
            let filtered = filter.as_ref().map_or(Filter::Keep, |filter| filter(&row));
            if filtered == Filter::Stop {
                return Ok(Page { items, next: None });
            }
            if items.len() >= limit {
                return Ok(Page { items, next: seen });
            }
            seen = Some(cursor(&row));
            if filtered == Filter::Keep {
                items.push(row);
            }
        }
        if is_last {
            return Ok(Page { items, next: None });
        }
        if items.len() >= limit {
            break;
        }
    }
    Ok(Page { items, next: seen })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(count: u32, step: u32, last: u32, limit: u32) -> (Vec<u32>, usize) {
        let read = |before: Option<u32>, most: u32| async move {
            let before = before.unwrap_or(count);
            Ok((before.saturating_sub(most)..before).rev().collect())
        };
        let (mut pages, mut before) = (Vec::new(), None);
        loop {
            let filter = |row: &u32| {
                if *row < last {
                    Filter::Stop
                } else {
                    Filter::keep_if(row.is_multiple_of(step))
                }
            };
            let filter = (step > 1 || last > 0).then_some(filter);
            let page = read_page(PageRequest { before, limit }, READS, filter, |row| *row, read)
                .await
                .unwrap();
            assert!(u32::try_from(page.items.len()).unwrap() <= limit);
            pages.push(page.items);
            match page.next {
                None => return (pages.concat(), pages.len()),
                next => before = next,
            }
        }
    }

    #[tokio::test]
    async fn list_pages_contain_every_matching_row_once_in_order() {
        for count in [0, 1, 24, 25, 26, 99, 100, 101, 250] {
            for step in [1, 2, 7] {
                for (last, limit) in [(0, 1), (0, 25), (0, 99), (0, 100), (20, 25)] {
                    let (found, _) = all(count, step, last, limit).await;
                    let expected: Vec<u32> = (last..count).rev().filter(|row| row % step == 0).collect();
                    assert_eq!(found, expected, "{count} {step} {last} {limit}");
                }
            }
        }
    }

    #[tokio::test]
    async fn list_pages_are_read_until_full_or_exhausted() {
        assert_eq!(all(25, 1, 0, 25).await.1, 1);
        assert_eq!(all(26, 1, 0, 25).await.1, 2);
        // Only rows 0, 5,000 and 10,000 of 10,001 match; each page reads a thousand rows.
        assert_eq!(all(10_001, 5_000, 0, 25).await, (vec![10_000, 5_000, 0], 11));
        // Reading ends at the first row below `last`.
        assert_eq!(all(10_001, 5_000, 9_900, 25).await, (vec![10_000], 1));
    }
}
