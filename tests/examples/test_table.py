"""The periodic table's values, against rules that are known apart from it."""

from collections import Counter

from fleet_examples.table import Element, table

NOBLE_GASES = (0, 2, 10, 18, 36, 54, 86, 118)


def symbols(group: int) -> list[str]:
    return [element.symbol for element in table() if element.group == group]


def test_there_are_118_elements_numbered_in_order() -> None:
    assert [element.number for element in table()] == list(range(1, 119))


def test_names_and_symbols_are_unique_and_well_formed() -> None:
    assert len({element.name for element in table()}) == 118
    assert len({element.symbol for element in table()}) == 118
    assert all(element.symbol.istitle() and 1 <= len(element.symbol) <= 2 for element in table())
    assert all(element.name.istitle() and element.name.isalpha() for element in table())


def test_a_symbol_starts_like_its_name_except_for_those_from_latin_and_german() -> None:
    others = {element.symbol for element in table() if element.name[0] != element.symbol[0]}
    assert others == {"Na", "K", "Fe", "Ag", "Sn", "Sb", "W", "Au", "Hg", "Pb"}
    second = {element.symbol for element in table() if element.symbol[1:] not in element.name.lower()}
    assert second - others == {"Cu"}


def test_periods_end_with_the_noble_gases() -> None:
    for element in table():
        assert NOBLE_GASES[element.period - 1] < element.number <= NOBLE_GASES[element.period]
    assert symbols(18) == ["He", "Ne", "Ar", "Kr", "Xe", "Rn", "Og"]


def expected_place(element: Element) -> tuple[int | None, str]:
    """Group and block by counting electrons from the last noble gas."""
    after = element.number - NOBLE_GASES[element.period - 1]
    length = NOBLE_GASES[element.period] - NOBLE_GASES[element.period - 1]
    if element.symbol == "He":
        return 18, "s"
    if after <= 2:
        return after, "s"
    if length == 32 and after <= 16:
        return None, "f"
    group = 18 - (length - after)
    return group, "d" if group <= 12 else "p"


def test_groups_and_blocks_follow_from_the_atomic_number() -> None:
    assert [(element.group, element.block) for element in table()] == [expected_place(element) for element in table()]


def test_blocks_have_their_sizes() -> None:
    assert Counter(element.block for element in table()) == {"s": 14, "p": 36, "d": 40, "f": 28}


def test_well_known_groups_hold_their_members() -> None:
    assert symbols(1) == ["H", "Li", "Na", "K", "Rb", "Cs", "Fr"]
    assert symbols(2) == ["Be", "Mg", "Ca", "Sr", "Ba", "Ra"]
    assert symbols(3) == ["Sc", "Y", "Lu", "Lr"]
    assert symbols(11) == ["Cu", "Ag", "Au", "Rg"]
    assert symbols(14) == ["C", "Si", "Ge", "Sn", "Pb", "Fl"]
    assert symbols(17) == ["F", "Cl", "Br", "I", "At", "Ts"]


def test_elements_beyond_uranium_are_of_the_twentieth_century_or_later() -> None:
    assert all(element.discovered and element.discovered >= 1940 for element in table()[92:])
    known = {element.symbol for element in table() if element.discovered is None}
    assert known == {"C", "S", "Fe", "Cu", "Ag", "Sn", "Sb", "Au", "Hg", "Pb"}


def test_some_elements_are_themselves() -> None:
    known = {
        (26, "Fe", "Iron"),
        (50, "Sn", "Tin"),
        (74, "W", "Tungsten"),
        (79, "Au", "Gold"),
        (112, "Cn", "Copernicium"),
    }
    assert known <= {(element.number, element.symbol, element.name) for element in table()}
