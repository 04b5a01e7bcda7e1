//! What `kubectl get` shows of an object: one column each.

use serde_json::Value;

use super::jsonpath::Path;

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub name: String,
    /// `string`, `integer`, `date` …
    pub kind: String,
    pub description: String,
    /// Above 0: with `-o wide` alone.
    pub priority: i32,
    pub cell: Cell,
}

/// Where a cell's value comes from.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// A path into the object.
    Path(Path),
    /// Paths to a time, of which the first that is there is shown as the age since then.
    Age(Vec<Path>),
    /// Computed from the object.
    Computed(fn(&Value) -> Value),
}

impl Column {
    pub fn new(name: &str, kind: &str, cell: Cell) -> Self {
        let description = String::new();
        Self { name: name.to_owned(), kind: kind.to_owned(), description, priority: 0, cell }
    }

    pub fn computed(name: &str, cell: fn(&Value) -> Value) -> Self {
        Self::new(name, "string", Cell::Computed(cell))
    }

    pub fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }
}

/// The column that every kind starts with.
pub(crate) fn name() -> Column {
    Column::new("Name", "string", Cell::Path(path(".metadata.name")))
}

/// The column that most kinds end with.
pub(crate) fn age() -> Column {
    Column::new("Age", "string", Cell::Age(vec![path(".metadata.creationTimestamp")]))
}

/// A column that shows one field.
pub(crate) fn field(name: &str, to: &str) -> Column {
    Column::new(name, "string", Cell::Path(path(to)))
}

/// A path that is written in this program.
pub(crate) fn path(text: &str) -> Path {
    Path::parse(text).expect("a path of our own")
}
