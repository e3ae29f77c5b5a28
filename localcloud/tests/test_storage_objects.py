"""Objects with Google's own client: data, checksums, preconditions, listing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.cloud import storage
from google.cloud.storage import transfer_manager
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse

from localcloud.tests.storage_fixtures import HTTP, StorageCloud

NAMES = [
    "a/b/c.txt",
    "with space.txt",
    "ünï/çødé-✓",
    "up/../../etc/passwd",
    "100%25.txt",
    "a?b#c&d=e",
    "x/rewriteTo/b/c/o/d",
    "//",
]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorageCloud]:
    """One cloud for the file; each test has its own bucket."""
    running = StorageCloud(tmp_path_factory.mktemp("storage")).start()
    yield running
    running.stop()


@pytest.fixture
def bucket(cloud: StorageCloud, request: pytest.FixtureRequest) -> storage.Bucket:
    """An empty bucket without soft delete."""
    made = cloud.client().bucket(f"b-{abs(hash(request.node.name)):x}")
    made.soft_delete_policy.retention_duration_seconds = 0
    made.create(location="us-central1")
    return made


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_only_a_name(bucket: storage.Bucket, cloud: StorageCloud, name: str) -> None:
    bucket.blob(name).upload_from_string(f"data of {name}", if_generation_match=0)
    assert bucket.blob(name).download_as_text() == f"data of {name}"
    assert [blob.name for blob in bucket.list_blobs()] == [name]
    assert bucket.get_blob(name).size == len(f"data of {name}".encode())
    bucket.blob(f"{name}.new").rewrite(bucket.blob(name))
    bucket.blob(name).delete()
    bucket.blob(f"{name}.new").delete()
    assert list(bucket.list_blobs()) == []
    assert all(len(path.name) == 32 for path in cloud.data_files())


@pytest.mark.parametrize("name", [".", "..", "line\nbreak", "x" * 1025, ".well-known/acme-challenge/x"])
def test_forbidden_names_are_refused(bucket: storage.Bucket, name: str) -> None:
    with pytest.raises(exceptions.BadRequest):
        bucket.blob(name).upload_from_string("x")


def test_missing_object_and_bucket_say_so(cloud: StorageCloud, bucket: storage.Bucket) -> None:
    with pytest.raises(exceptions.NotFound, match=f"No such object: {bucket.name}/nothing"):
        bucket.blob("nothing").download_as_bytes()
    with pytest.raises(exceptions.NotFound):
        bucket.blob("nothing").delete()
    with pytest.raises(exceptions.NotFound, match="The specified bucket does not exist"):
        list(cloud.client().list_blobs("no-such-bucket"))
    assert bucket.get_blob("nothing") is None


def test_metadata_is_kept(bucket: storage.Bucket) -> None:
    blob = bucket.blob("m")
    blob.metadata, blob.cache_control = {"run": "r1", "step": "5"}, "no-store"
    blob.upload_from_string("{}", content_type="application/json")
    blob = bucket.get_blob("m")
    assert (blob.content_type, blob.metadata, blob.cache_control) == (
        "application/json",
        {"run": "r1", "step": "5"},
        "no-store",
    )


def test_preconditions(bucket: storage.Bucket) -> None:
    blob = bucket.blob("once")
    blob.upload_from_string("first", if_generation_match=0)
    first = blob.generation
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("once").upload_from_string("second", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("once").delete(if_generation_match=first + 1)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.get_blob("once", if_metageneration_match=7)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("copy").rewrite(blob, if_source_generation_match=1)
    with pytest.raises(exceptions.NotModified):
        blob.reload(if_generation_not_match=first)
    bucket.blob("once").upload_from_string("second", if_generation_match=first)
    assert bucket.blob("once").download_as_bytes() == b"second"
    with pytest.raises(exceptions.NotFound):
        bucket.blob("once", generation=first).download_as_bytes()


def test_a_resumable_upload_asks_for_its_precondition_again_at_its_end(bucket: storage.Bucket) -> None:
    blob = bucket.blob("raced", chunk_size=256 * 1024)
    writer = blob.open("wb", if_generation_match=0)
    writer.write(os.urandom(600 * 1024))
    bucket.blob("raced").upload_from_string("the winner")
    with pytest.raises(InvalidResponse, match="412"):
        writer.close()
    assert bucket.blob("raced").download_as_bytes() == b"the winner"


def test_wrong_checksums_are_refused_and_leave_nothing(cloud: StorageCloud, bucket: storage.Bucket) -> None:
    before = len(cloud.data_files())
    for field in ("crc32c", "md5_hash"):
        blob = bucket.blob("bad")
        setattr(blob, field, "AAAAAA==")
        with pytest.raises(exceptions.BadRequest, match="doesn't match calculated"):
            blob.upload_from_string("data", checksum=None)
    url = f"{cloud.endpoint}/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=bad"
    answer = HTTP.post(url, content=b"data", headers={"x-goog-hash": "crc32c=AAAAAA=="})
    assert answer.status_code == 400
    assert answer.json()["error"]["errors"][0]["reason"] == "invalid"
    assert bucket.get_blob("bad") is None
    assert len(cloud.data_files()) == before


def test_the_client_notices_a_flipped_bit_on_disk(cloud: StorageCloud, bucket: storage.Bucket, tmp_path: Path) -> None:
    before = set(cloud.data_files())
    bucket.blob("precious").upload_from_string(b"\0" * 100_000)
    (file,) = set(cloud.data_files()) - before
    file.write_bytes(b"\0" * 99_999 + b"\1")
    with pytest.raises(DataCorruption):
        bucket.blob("precious").download_to_filename(str(tmp_path / "got"), checksum="crc32c")


def test_ranges(cloud: StorageCloud, bucket: storage.Bucket) -> None:
    data = bytes(range(256)) * 100
    bucket.blob("r").upload_from_string(data)
    blob = bucket.blob("r")
    assert blob.download_as_bytes(start=10, end=19) == data[10:20]
    assert blob.download_as_bytes(start=25_590) == data[25_590:]
    url = f"{cloud.endpoint}/storage/v1/b/{bucket.name}/o/r?alt=media"
    last = HTTP.get(url, headers={"range": "bytes=-5"})
    assert (last.status_code, last.content, last.headers["content-range"]) == (
        206,
        data[-5:],
        "bytes 25595-25599/25600",
    )
    with pytest.raises(exceptions.RequestRangeNotSatisfiable):
        blob.download_as_bytes(start=25_600)
    head = HTTP.head(url)
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "25600", b"")
    assert head.headers["x-goog-generation"] == str(bucket.get_blob("r").generation)


def test_the_xml_style_read_is_for_its_own_host_only(cloud: StorageCloud, bucket: storage.Bucket) -> None:
    bucket.blob("d/x y").upload_from_string("0123456789")
    path, own = f"{cloud.endpoint}/{bucket.name}/d%2Fx%20y", {"host": "storage.googleapis.com"}
    assert HTTP.get(path, headers={**own, "range": "bytes=2-4"}).content == b"234"
    assert HTTP.get(f"{cloud.endpoint}/{bucket.name}/d/x%20y", headers=own).content == b"0123456789"
    assert HTTP.head(path, headers=own).headers["content-length"] == "10"
    assert "NoSuchKey" in HTTP.get(f"{path}z", headers=own).text
    assert "NoSuchBucket" in HTTP.get(f"{cloud.endpoint}/nope/x", headers=own).text
    assert HTTP.get(path, headers={**own, "range": "bytes=10-"}).status_code == 416
    assert HTTP.get(path).status_code == 404


def test_prefix_delimiter_and_pages(bucket: storage.Bucket) -> None:
    names = ["a/", "a/1", "a/2", "a/b/3", "b", "c/4", "d"]
    for name in names:
        bucket.blob(name).upload_from_string("x")
    top = bucket.list_blobs(delimiter="/")
    assert [blob.name for blob in top] == ["b", "d"]
    assert top.prefixes == {"a/", "c/"}
    inner = bucket.list_blobs(prefix="a/", delimiter="/", include_trailing_delimiter=True)
    assert [blob.name for blob in inner] == ["a/", "a/1", "a/2"]
    assert inner.prefixes == {"a/b/"}
    for size in (1, 2, 3):
        paged = bucket.list_blobs(page_size=size)
        assert [blob.name for page in paged.pages for blob in page] == names
        folders = bucket.list_blobs(delimiter="/", page_size=size)
        entries = [[blob.name for blob in page] for page in folders.pages]
        assert list(chain.from_iterable(entries)) == ["b", "d"]
        assert folders.prefixes == {"a/", "c/"}
    assert [blob.name for blob in bucket.list_blobs(max_results=3)] == names[:3]
    with pytest.raises(exceptions.BadRequest):
        list(bucket.list_blobs(page_token="no token"))


def test_rewrite(cloud: StorageCloud, bucket: storage.Bucket) -> None:
    whole = bucket.blob("whole")
    whole.upload_from_string("all of it", content_type="text/plain")
    other = cloud.client().create_bucket(f"{bucket.name}-other")
    cold = other.blob("cold")
    cold.storage_class = "NEARLINE"
    assert cold.rewrite(whole)[0] is None
    with pytest.raises(exceptions.NotFound):
        other.blob("never").rewrite(bucket.blob("missing"))
    whole.delete()
    assert cold.download_as_text() == "all of it"
    found = other.get_blob("cold")
    assert (found.storage_class, found.content_type) == ("NEARLINE", "text/plain")


def test_transfer_manager_with_threads(bucket: storage.Bucket, tmp_path: Path) -> None:
    names = [f"many/{number:02d}" for number in range(20)]
    (tmp_path / "up" / "many").mkdir(parents=True)
    for name in names:
        (tmp_path / "up" / name).write_bytes(os.urandom(50_000))
    thread = {"worker_type": transfer_manager.THREAD, "max_workers": 4, "raise_exception": True}
    transfer_manager.upload_many_from_filenames(bucket, names, source_directory=str(tmp_path / "up"), **thread)
    again = transfer_manager.upload_many_from_filenames(
        bucket, names, source_directory=str(tmp_path / "up"), skip_if_exists=True, **thread
    )
    assert {type(result) for result in again} == {exceptions.PreconditionFailed}, "412 is how the client skips"
    transfer_manager.download_many_to_path(bucket, names, destination_directory=str(tmp_path / "down"), **thread)
    assert all((tmp_path / "down" / name).read_bytes() == (tmp_path / "up" / name).read_bytes() for name in names)
    transfer_manager.download_chunks_concurrently(
        bucket.blob(names[0]), str(tmp_path / "chunked"), chunk_size=9_000, worker_type="thread", crc32c_checksum=True
    )
    assert (tmp_path / "chunked").read_bytes() == (tmp_path / "up" / names[0]).read_bytes()


def test_wrong_fields_are_refused(cloud: StorageCloud, bucket: storage.Bucket) -> None:
    bucket.blob("x").upload_from_string("x")
    url = f"{cloud.endpoint}/storage/v1/b/{bucket.name}/o/x"
    copy = f"{url}/rewriteTo/b/{bucket.name}/o/y"
    assert HTTP.post(copy, json={"contentTpye": "text/plain"}).status_code == 400
    assert HTTP.post(copy, json={"metadata": {"a": 1}}).status_code == 400
    assert HTTP.post(copy, json={"temporaryHold": True}).status_code == 400
    assert HTTP.post(copy, content=b"no json").status_code == 400
    assert HTTP.get(url, params={"ifGenerationMatch": "x"}).status_code == 400
    assert HTTP.get(f"{cloud.endpoint}/storage/v1/b/{bucket.name}/o?matchGlob=[a-c]").status_code == 400
    assert HTTP.get(f"{cloud.endpoint}/storage/v1/b/{bucket.name}/o?filter=x").status_code == 400
    assert HTTP.get(f"{cloud.endpoint}/storage/v1/b/{bucket.name}/o?softDeleted=true").status_code == 400


def test_glob_lists_the_names_that_it_matches(bucket: storage.Bucket) -> None:
    for name in ("r/e/r-1/a1/M", "r/e/r-1/a1/deep/M", "r/e/r-2/a1/M", "r/e/r-2/a1/N", "r/e/M"):
        bucket.blob(name).upload_from_string("x")

    def listed(glob: str) -> list[str]:
        return [blob.name for blob in bucket.list_blobs(match_glob=glob, page_size=1)]

    assert listed("r/e/*/*/M") == ["r/e/r-1/a1/M", "r/e/r-2/a1/M"]
    assert listed("r/e/**/M") == ["r/e/r-1/a1/M", "r/e/r-1/a1/deep/M", "r/e/r-2/a1/M"]
    assert listed("r/e/r-?/a1/N") == ["r/e/r-2/a1/N"]
