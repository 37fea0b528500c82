#include <gtest/gtest.h>

#include "evenkeel/error.h"
#include "remote/address.h"
#include "remote/answers.h"
#include "remote/credential_services.h"
#include "remote/credentials.h"
#include "remote/listing.h"
#include "remote/response.h"
#include "remote/xml.h"

namespace evenkeel {
namespace {

TEST(ContentRange, IsParsedOrRefused) {
  const auto range = parse_content_range("bytes 5-9/10");
  ASSERT_TRUE(range && range->range);
  EXPECT_EQ(range->range->first, 5u);
  EXPECT_EQ(range->range->last, 9u);
  EXPECT_EQ(range->total, 10u);
  EXPECT_EQ(parse_content_range("bytes */0")->total, 0u);
  EXPECT_FALSE(parse_content_range("bytes 0-1/*")->total);
  for (const char* wrong :
       {"", "bytes", "bytes 5-4/10", "bytes 0-10/10", "bytes 0-9", "items 0-1/2", "bytes -1-2/3",
        "bytes 0-18446744073709551615/*", "bytes 0-99999999999999999999/*", "bytes 0x1-2/3"}) {
    EXPECT_FALSE(parse_content_range(wrong)) << wrong;
  }
}

TEST(HttpBody, IsTakenOnlyWhereItIsWhatWasAskedFor) {
  HttpRequest request;
  request.range = ByteRange{0, 99};
  const auto judge = [&](int status, const char* range, std::optional<std::uint64_t> length) {
    HttpAnswer answer;
    answer.status = status;
    answer.content_range = range;
    answer.content_length = length;
    return judge_body(request, answer);
  };
  EXPECT_EQ(judge(206, "bytes 0-99/1000", 100), Body::kRange);
  EXPECT_EQ(judge(200, "bytes 0-99/1000", 100), Body::kRange);  // as rclone does
  EXPECT_EQ(judge(206, "bytes 0-49/1000", 50), Body::kRange);
  EXPECT_EQ(judge(206, "bytes 0-100/1000", 101), Body::kOtherBytes);
  EXPECT_EQ(judge(206, "bytes 1-99/1000", 99), Body::kOtherBytes);
  EXPECT_EQ(judge(206, "", 100), Body::kOtherBytes);
  EXPECT_EQ(judge(200, "", 100), Body::kWholeObject);
  EXPECT_EQ(judge(200, "", 101), Body::kIgnoresRange);
  EXPECT_EQ(judge(200, "", std::nullopt), Body::kIgnoresRange);
  EXPECT_EQ(judge(503, "", 10), Body::kText);
}

TEST(HttpBody, IsRefusedIfItIsCompressed) {
  HttpRequest request;
  request.range = ByteRange{0, 99};
  HttpAnswer answer;
  answer.status = 206;
  answer.content_range = "bytes 0-99/1000";
  for (const char* encoding :
       {"gzip", "x-gzip", "GZIP", "br", "identity, zstd", "aws-chunked,deflate"}) {
    answer.content_encoding = encoding;
    EXPECT_EQ(judge_body(request, answer), Body::kCompressed) << encoding;
  }
  for (const char* encoding : {"", "identity", "aws-chunked", "utf-8", ",", "no gzip"}) {
    answer.content_encoding = encoding;
    EXPECT_EQ(judge_body(request, answer), Body::kRange) << encoding;
  }
}

TEST(HttpHeader, KeepsTheFieldsOfTheLastAnswer) {
  HttpAnswer answer;
  for (const char* line : {"HTTP/1.1 100 Continue\r\n", "ETag: \"old\"\r\n", "HTTP/1.1 206 OK\r\n",
                           "etag:  \"new\" \r\n", "CONTENT-LENGTH: 12\r\n", "nonsense\r\n"}) {
    take_header(line, answer);
  }
  EXPECT_EQ(answer.etag, "\"new\"");
  EXPECT_EQ(answer.content_length, 12u);
}

TEST(HttpHeader, KeepsLongAddressesWhole) {
  const std::string address = "https://host/x?token=" + std::string(20'000, 'a');
  HttpAnswer answer;
  take_header("Location: " + address + "\r\n", answer);
  EXPECT_EQ(answer.location, address);
}

TEST(References, AreResolvedAsInRfc3986) {
  const Address base = parse_address("http://a/b/c/d.npy?q");
  const std::pair<std::string_view, std::string_view> examples[] = {
      {"http://g", "http://g"},
      {"g:h", "g:h"},
      {"g", "http://a/b/c/g"},
      {"./g", "http://a/b/c/g"},
      {"g/", "http://a/b/c/g/"},
      {"/g", "http://a/g"},
      {"//g/h", "http://g/h"},
      {"?y", "http://a/b/c/d.npy?y"},
      {"g?y=x:y/..", "http://a/b/c/g?y=x:y/.."},
      {".", "http://a/b/c/"},
      {"..", "http://a/b/"},
      {"../g", "http://a/b/g"},
      {"../..", "http://a/"},
      {"../../../g", "http://a/g"},
      {"/./g", "http://a/g"},
      {"/../g", "http://a/g"},
      {"g.", "http://a/b/c/g."},
      {"..g", "http://a/b/c/..g"},
      {"./g/.", "http://a/b/c/g/"},
      {"g/./h", "http://a/b/c/g/h"},
      {"g/../h", "http://a/b/c/h"},
      {"#s", "http://a/b/c/d.npy?q#s"},
  };
  for (const auto& [reference, target] : examples) {
    EXPECT_EQ(resolve_reference(base, reference), target) << reference;
  }
  EXPECT_EQ(resolve_reference(parse_address("https://a"), "g"), "https://a/g");
}

TEST(XmlReader, GivesElementsWithTheirText) {
  XmlReader reader("<?xml version='1.0'?><!-- x --><a xmlns='n'><b>1 &lt; &#x32;</b><c/></a>");
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.path(), "a/b");
  EXPECT_EQ(reader.text(), "1 < 2");
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.path(), "a/c");
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.path(), "a");
  EXPECT_FALSE(reader.next());
}

TEST(XmlReader, RefusesWhatIsNotWellFormed) {
  for (const char* wrong :
       {"<a>", "<a></b>", "</a>", "<a>&x;</a>", "<a>&#0;</a>", "<a>&#xd800;</a>",
        "<!DOCTYPE a><a/>", "<a/><b/>", "<a", "<a>&amp</a>", "<>"}) {
    XmlReader reader(wrong);
    EXPECT_THROW(while (reader.next()){}, XmlError) << wrong;
  }
}

TEST(BucketListing, IsParsed) {
  const ListingPage page = parse_listing(
      "<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>a=1/x&amp;y.bin</Key>"
      "<Size>3</Size></Contents><Contents><Key>b</Key></Contents>"
      "<NextContinuationToken>more</NextContinuationToken></ListBucketResult>");
  EXPECT_EQ(page.keys, (std::vector<std::string>{"a=1/x&y.bin", "b"}));
  EXPECT_EQ(page.next, "more");
  EXPECT_THROW(parse_listing("<html></html>"), Error);
  EXPECT_THROW(
      parse_listing("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"), Error);
}

TEST(BucketListing, MatchesAsFilesDo) {
  EXPECT_TRUE(matches_pattern("d/train_*.bin", "d/train_01.bin"));
  EXPECT_FALSE(matches_pattern("d/*.bin", "d/e/x.bin"));
  EXPECT_TRUE(matches_pattern("year=*/x", "year=2024/x"));
  EXPECT_TRUE(matches_pattern("d/*", "d/x.bin"));
  EXPECT_FALSE(matches_pattern("d/*", "d/"));  // an empty object for the folder
}

TEST(ServiceErrors, AreReadFromXmlAlone) {
  const ServiceError error = parse_service_error(
      "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>");
  EXPECT_EQ(error.code, "SlowDown");
  EXPECT_EQ(error.words(), "SlowDown (Please reduce your request rate.)");
  EXPECT_EQ(parse_service_error("<html><body>502").words(), "");
}

TEST(ServiceErrors, SomeMayPass) {
  const auto passes = [](int status, const std::string& code) {
    HttpAnswer answer;
    answer.status = status;
    answer.body = Body::kText;
    answer.text = "<Error><Code>" + code + "</Code></Error>";
    std::string reason;
    return may_pass(answer, "s3://bucket/key", reason);
  };
  EXPECT_TRUE(passes(503, "SlowDown"));
  EXPECT_TRUE(passes(400, "RequestTimeout"));
  EXPECT_FALSE(passes(400, "InvalidRequest"));
  EXPECT_FALSE(passes(403, "RequestTimeout"));
}

TEST(AwsProfiles, AreRead) {
  const std::string file =
      "# comment\n[default]\naws_access_key_id = AK\n aws_secret_access_key = no\n\n"
      "[profile other]\r\nregion=eu-west-1\r\ns3 =\n  endpoint = x\n";
  EXPECT_EQ(profile_setting(file, "default", "aws_access_key_id"), "AK");
  EXPECT_EQ(profile_setting(file, "profile other", "region"), "eu-west-1");
  EXPECT_EQ(profile_setting(file, "other", "region"), "");
  EXPECT_EQ(profile_setting(file, "default", "aws_secret_access_key"), "");
}

TEST(RemoteSecret, KeepsItsText) {
  const Secret secret("abc"), copy = secret;
  EXPECT_EQ(copy.view(), "abc");
  EXPECT_TRUE(Secret("").empty());
}

TEST(CredentialServices, TimesAreUtc) {
  EXPECT_EQ(parse_expiration("1970-01-02T00:00:00Z"), 86'400);
  EXPECT_EQ(parse_expiration("2026-11-16T18:00:00.123Z"), 1'794'852'000);
  EXPECT_EQ(parse_expiration("2026-11-16T18:00:00+00:00"), 1'794'852'000);
  for (const char* wrong : {"", "soon", "2026-11-16", "2026-11-16T18:00:00",
                            "2026-11-16T18:00:00+01:00", "2026-11-16T18:00:00Zx"}) {
    EXPECT_EQ(parse_expiration(wrong), std::nullopt) << wrong;
  }
}

TEST(CredentialServices, KeysAreTakenFromJsonAndXml) {
  const Credentials json = parse_credentials_json(
      R"({"AccessKeyId":"A","SecretAccessKey":"b","Token":"c","Expiration":"1970-01-02T00:00:00Z"})",
      "it");
  EXPECT_EQ(json.key_id, "A");
  EXPECT_EQ(json.secret.view(), "b");
  EXPECT_EQ(json.token.view(), "c");
  EXPECT_EQ(json.expires, 86'400);
  EXPECT_EQ(json.found_in, "it");
  const Credentials xml = parse_credentials_xml(
      "<R><X><Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>b</SecretAccessKey>"
      "</Credentials></X></R>",
      "it");
  EXPECT_EQ(xml.key_id, "A");
  EXPECT_EQ(xml.expires, 0);
}

TEST(CredentialServices, AnswersThatAreNoKeysAreErrorsWithoutTheAnswer) {
  for (const char* wrong :
       {"", "no", "[]", "{}", R"({"AccessKeyId":"A"})",
        R"({"AccessKeyId":1,"SecretAccessKey":"hidden"})",
        R"({"AccessKeyId":"A","SecretAccessKey":"hidden","Expiration":"never"})"}) {
    try {
      parse_credentials_json(wrong, "it");
      FAIL() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find("hidden"), std::string::npos) << error.what();
    }
    EXPECT_THROW(parse_credentials_xml(wrong, "it"), Error) << wrong;
  }
}

}  // namespace
}  // namespace evenkeel
