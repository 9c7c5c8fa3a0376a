# Formula for Homebrew on Linux. scripts/dist.sh fills in the version, the address and the checksum of the source
# archive, which holds all dependencies: the build needs no other download. Nobody has run it with Homebrew yet.
class Weir < Formula
  desc "API gateway and load tester"
  homepage "@URL@"
  url "@URL@/weir-@VERSION@-source.tar.xz"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on "rust" => :build
  depends_on :linux

  def install
    system "cargo", "install", "--locked", "--offline", "--path", "crates/weirgate", "--root", prefix
    system bin/"weir", "man", "--dir", man1
    generate_completions_from_executable(bin/"weir", "completions", shells: [:bash, :fish, :zsh])
    (etc/"weir").install "dist/weir.yaml"
    doc.install "README.md", "CHANGELOG.md", "NOTICE", "SECURITY.md", "docs", "examples"
  end

  service do
    run [opt_bin/"weir", "run", "-c", etc/"weir/weir.yaml"]
    keep_alive true
    log_path var/"log/weir.log"
    error_log_path var/"log/weir.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/weir --version")
    (testpath/"weir.yaml").write <<~YAML
      listeners: { web: { address: 127.0.0.1:#{free_port} } }
      routes: { all: { match: { path: "/*" }, respond: { body: hello } } }
    YAML
    assert_match "good", shell_output("#{bin}/weir check -c #{testpath}/weir.yaml")
  end
end
