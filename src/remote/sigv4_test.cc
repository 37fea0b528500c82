#include "remote/sigv4.h"

#include <gtest/gtest.h>

#include "remote/address.h"
#include "remote/sha256.h"
#include "remote/store.h"

namespace evenkeel {
namespace {

// The examples of "Authenticating Requests: Using the Authorization Header" in the S3 API
// reference.
constexpr std::string_view kKey = "AKIAIOSFODNN7EXAMPLE";
constexpr std::string_view kSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
constexpr std::string_view kTime = "20130524T000000Z";

SignedRequest example(const std::string& path, const std::string& query) {
  return {.method = "GET",
          .path = path,
          .query = query,
          .headers = {{"host", "examplebucket.s3.amazonaws.com"},
                      {"x-amz-content-sha256", std::string(kEmptyPayload)},
                      {"x-amz-date", std::string(kTime)}},
          .payload_hash = std::string(kEmptyPayload)};
}

std::string signature(const SignedRequest& request) {
  const std::string all = authorization(request, {kKey, kSecret, "us-east-1", "s3"}, kTime);
  return all.substr(all.rfind('=') + 1);
}

TEST(SigV4, SignsTheRangeRequestOfTheReference) {
  SignedRequest request = example("/test.txt", "");
  request.headers.emplace_back("range", "bytes=0-9");
  EXPECT_EQ(authorization(request, {kKey, kSecret, "us-east-1", "s3"}, kTime),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(SigV4, SignsTheLifecycleAndListRequestsOfTheReference) {
  EXPECT_EQ(signature(example("/", "lifecycle=")),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  EXPECT_EQ(signature(example("/", encode_query({{"prefix", "J"}, {"max-keys", "2"}}))),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

// get-vanilla and get-vanilla-query-order-key-case of aws-sig-v4-test-suite.
TEST(SigV4, SignsRequestsOfTheTestSuite) {
  const SigningKey key{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1",
                       "service"};
  SignedRequest request{
      .method = "GET",
      .path = "/",
      .query = "",
      .headers = {{"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"}},
      .payload_hash = std::string(kEmptyPayload)};
  EXPECT_TRUE(authorization(request, key, "20150830T123600Z")
                  .ends_with("5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"));
  request.query = encode_query({{"Param2", "value2"}, {"Param1", "value1"}});
  EXPECT_TRUE(authorization(request, key, "20150830T123600Z")
                  .ends_with("b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"));
}

TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(hex_of(sha256("")), kEmptyPayload);
  EXPECT_EQ(hex_of(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  // RFC 4231, cases 2 and 6.
  EXPECT_EQ(hex_of(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex_of(hmac_sha256(std::string(131, '\xaa'),
                               "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(RemoteAddress, IsTakenApart) {
  const Address http = parse_address("https://host:8443/a/b.npy?X-Amz-Signature=1#part");
  EXPECT_EQ(http.host, "host:8443");
  EXPECT_EQ(http.path, "/a/b.npy");
  EXPECT_EQ(http.query, "X-Amz-Signature=1");
  const Address s3 = parse_address("s3://bucket/year=2024/a b?.bin");
  EXPECT_EQ(s3.host, "bucket");
  EXPECT_EQ(s3.path, "year=2024/a b?.bin");
  EXPECT_EQ(s3.text(), "s3://bucket/year=2024/a b?.bin");
  EXPECT_EQ(percent_encode(s3.path, true), "year%3D2024/a%20b%3F.bin");
  EXPECT_EQ(percent_decode("year%3D2024/a%20b%3F.bin%"), s3.path + "%");
  EXPECT_EQ(object_name("https://host/a/b.npy?x=/y"), "b.npy");
  EXPECT_EQ(with_ending("https://host/a.bin?q=.bin", ".bin", ".idx"), "https://host/a.idx?q=.bin");
  for (const char* wrong : {"s3://", "s3:///key", "https://", "https://user:pw@host/x",
                            "http://host/a b", "s3://bad bucket/x"}) {
    EXPECT_ANY_THROW(parse_address(wrong)) << wrong;
  }
}

// libcurl leaves the usual port out of the field Host. A signature of another host is rejected.
TEST(RemoteStore, TheUsualPortOfAnEndpointIsNotPartOfTheHost) {
  const auto url_at = [](const std::string& endpoint) {
    RemoteSettings settings;
    settings.s3_endpoint = endpoint;
    settings.region = "us-east-1";
    settings.anonymous = true;
    const Address object = parse_address("s3://bucket/key");
    return Store(object, settings).request(object).url;
  };
  EXPECT_EQ(url_at("https://host:443/a"), "https://host/a/bucket/key");
  EXPECT_EQ(url_at("http://host:80"), "http://host/bucket/key");
  EXPECT_EQ(url_at("http://[::1]:80"), "http://[::1]/bucket/key");
  EXPECT_EQ(url_at("http://host:443"), "http://host:443/bucket/key");
  EXPECT_EQ(url_at("https://host:8443"), "https://host:8443/bucket/key");
}

}  // namespace
}  // namespace evenkeel
