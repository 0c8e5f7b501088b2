"""Rules as they are stored come back as they were, and those of a newer release harm nobody."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.security.acls import Acl, Entry, Operation, Pattern, PatternType, Permission, ResourceType, acl_problem
from penstock.security.stored_acls import entries_of, pattern_of, stored_entries, znode_name

names = st.text(min_size=1, max_size=20)
patterns = st.builds(
    Pattern, st.sampled_from(ResourceType), st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]), names
)
entries = st.builds(
    Entry,
    names.map("User:{}".format),
    st.one_of(st.just("*"), names, st.ip_addresses().map(str)),
    st.sampled_from(Operation),
    st.sampled_from(Permission),
)


@given(patterns, st.lists(entries, max_size=5))
def test_what_may_be_kept_comes_back(pattern: Pattern, several: list[Entry]) -> None:
    kept = {entry for entry in several if acl_problem(Acl(Pattern(ResourceType.TOPIC, *pattern[1:]), entry)) is None}
    assert pattern_of(znode_name(pattern)) == pattern
    assert set(entries_of(stored_entries(kept))) == kept


def test_what_a_newer_release_has_written_is_passed_over() -> None:
    known = Entry("User:a b", "*", Operation.READ, Permission.ALLOW)
    stored = stored_entries([known]) | {"ALLOW TELEPORT * User:a": "", "MAYBE READ * User:a": "", "what": ""}
    assert entries_of(stored) == [known]
    assert pattern_of("topic:literal:orders") == Pattern(ResourceType.TOPIC, PatternType.LITERAL, "orders")
    for name in ("galaxy:literal:x", "topic:fuzzy:x", "topic"):
        assert pattern_of(name) is None
