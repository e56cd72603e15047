"""A plan held against networks: every row that says built is certified again from its weights."""

import lemmaformer as lf
from verify.chain.certificate import Certificate


def recheck(found: lf.Plan) -> int:
    """How many rows are built; each is verified again to the error asked for, with the sizes that are printed and at most those proven."""
    error, plain = found.data["error"], found.as_dict()["rows"]
    assert isinstance(error, float) and isinstance(plain, list) and len(plain) == len(found.rows)
    count = 0
    for row, printed in zip(found.rows, plain, strict=True):
        if printed["built"] is None:
            assert row.network is None and row.why and not row.front, row
            continue
        assert row.network is not None and row.why is None, row
        certificate = lf.verify(row.network)
        assert isinstance(certificate, Certificate) and certificate.holds and certificate.certified <= error, row
        assert row.theorem == certificate.theorem == printed["theorem"]
        sizes = {name: printed["built"][name] for name in row.network.sizes}
        assert sizes == row.network.sizes == certificate.sizes and printed["built"]["certified"] == certificate.certified, row
        if row.proven.sizes is not None and found.data["dtype"] == "exact":
            assert row.built is not None and all(a <= b for a, b in zip(row.built, row.proven.sizes, strict=True)), row
        count += 1
    assert found.data["built"] == count
    return count
