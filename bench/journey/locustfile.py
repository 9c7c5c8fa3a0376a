"""The journey of bench/journey.py for Locust, with the faster of its two clients."""

from locust import FastHttpUser, task


class Shop(FastHttpUser):
    @task
    def journey(self):
        token = self.client.post("/login", json={"user": "a", "password": "b"}, name="login").json()["token"]
        items = self.client.get(f"/items?token={token}", name="items").json()["items"]
        with self.client.get(f"/items/{items[0]['id']}?token={token}", name="item", catch_response=True) as answer:
            if answer.status_code != 200:
                answer.failure(str(answer.status_code))
