//! The `JSONPath` of printer columns and scale paths, as far as Kubernetes itself takes it. No I/O.

use serde_json::Value;

/// A path into an object, read once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    /// Items whose field equals, or with `false` does not equal, the value.
    Where(Path, bool, Value),
}

impl Path {
    /// Reads `.status.conditions[?(@.type=="Ready")].status`; `None` if it is not a path.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = if let Some(inner) = rest.strip_prefix('[') {
                let end = bracket_end(inner)?;
                (bracket(&inner[..end])?, &inner[end + 1..])
            } else {
                let (name, after) = field(rest.strip_prefix('.')?);
                (if name == "*" { Step::All } else { Step::Field(name) }, after)
            };
            if step != Step::Field(String::new()) {
                steps.push(step);
            }
            rest = after;
        }
        Some(Self(steps))
    }

    /// Everything that it finds.
    pub fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![object];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.find(value)).collect();
        }
        found
    }

    /// The first thing that it finds.
    pub fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.find(object).into_iter().next()
    }

    /// Makes the place it names `value`; fields alone can be set.
    pub fn set(&self, object: &mut Value, value: Value) {
        let mut at = object;
        for step in &self.0 {
            let Step::Field(name) = step else { return };
            at = &mut at[name.as_str()];
        }
        *at = value;
    }
}

impl Step {
    fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(at) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let from_end = || items.len().checked_sub(usize::try_from(-at).ok()?);
                let at = usize::try_from(*at).ok().or_else(from_end);
                at.and_then(|at| items.get(at)).into_iter().collect()
            }
            Self::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(map) => map.values().collect(),
                _ => Vec::new(),
            },
            Self::Where(path, equal, wanted) => value
                .as_array()
                .into_iter()
                .flatten()
                .filter(|item| path.first(item).is_some_and(|found| (found == wanted) == *equal))
                .collect(),
        }
    }
}

/// A field's name up to the next `.` or `[`; a backslash takes the next character as it is.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return (name, &text[at..]),
            '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
            c => name.push(c),
        }
    }
    (name, "")
}

/// Where the bracket closes: quotes may hold brackets, and so may filters.
fn bracket_end(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(name) = quoted(text) {
        return Some(Step::Field(name));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|filter| filter.strip_suffix(')')) {
        let (path, equal, value) = match (filter.split_once("=="), filter.split_once("!=")) {
            (Some((path, value)), _) => (path, true, value),
            (None, Some((path, value))) => (path, false, value),
            (None, None) => return None,
        };
        let path = Path::parse(path.trim().strip_prefix('@')?)?;
        let value = value.trim();
        let value = quoted(value).map(Value::from).or_else(|| serde_json::from_str(value).ok())?;
        return Some(Step::Where(path, equal, value));
    }
    text.parse().ok().map(Step::Index)
}

fn quoted(text: &str) -> Option<String> {
    ['\'', '"'].into_iter().find_map(|quote| {
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        Some(inner.replace('\\', ""))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_find_what_kubernetes_finds() {
        let object = json!({
            "metadata": {"labels": {"tuist.dev/fleet": "a"}},
            "status": {"replicas": 3, "list": [{"n": 1}, {"n": 2}], "conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
        });
        for (path, found) in [
            (".status.replicas", json!([3])),
            ("{.status.replicas}", json!([3])),
            (r".metadata.labels.tuist\.dev/fleet", json!(["a"])),
            (".metadata.labels['tuist.dev/fleet']", json!(["a"])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (".status.conditions[?(@.type == 'Other')].status", json!(["False"])),
            (".status.conditions[?(@.type!='Ready')].type", json!(["Other"])),
            (".status.list[*].n", json!([1, 2])),
            (".status.list[-1].n", json!([2])),
            (".status.list[?(@.n==2)].n", json!([2])),
            (".nothing.here", json!([])),
        ] {
            assert_eq!(json!(Path::parse(path).unwrap().find(&object)), found, "{path}");
        }
        for text in ["status", ".a[", ".a[?(b)]", ".a[x]"] {
            assert_eq!(Path::parse(text), None, "{text}");
        }
    }
}
